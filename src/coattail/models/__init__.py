"""Everything with fit, predict, save and load.

Face: `linear`, `ranking` (models that read rankings), `deep`, `kinds.ModelKind`, `plugins`.
"""
