"""Networks and their parts: tensors in, tensors out; no files, no training.

Face: `layers`, `loss`, and a module per network.
"""
