"""Networks; the only room that imports torch (in its modules, not here).

Face: `deep_models` (make and load by name), `deep_params.DeepParams`, `transfer`, `device.resolve`.
"""
