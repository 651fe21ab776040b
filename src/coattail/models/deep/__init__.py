"""Networks; the only room that imports torch (in its modules only).

Face: `deep_models` (make and load by name), `deep_params.DeepParams`, `fit_data` (what fit takes),
`transfer`, `device.resolve`.
"""
