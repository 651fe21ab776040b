"""Networks as the pipeline sees them: fit, predict, save, load, explain."""
