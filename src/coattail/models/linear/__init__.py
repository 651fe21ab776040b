"""Linear models: one-vs-rest, label trees, instance trees, nearest texts.

Face: `linear_models` (make, fit, load by name), `linear_params.LinearParams`.
"""
