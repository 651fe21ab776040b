"""What is known of labels: frequency, propensity, and the trees over them.

Face: `frequency` (counts, bands, propensity), `tree.Tree`, `tree_building.build`, `tree_params`.
"""
