"""Networks as the pipeline sees them: fit, predict, save, load, explain.

Face: `word_model`, `level_model`, `text_model`.
"""
