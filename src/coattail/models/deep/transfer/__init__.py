"""HTTN and its rivals: head classifiers lend to the tail.

Face: `transfer_models` (make and load by name), `transfer_params.TransferParams`.
"""
