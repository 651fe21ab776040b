"""Networks and their parts: tensors in, tensors out; no files, no training."""
