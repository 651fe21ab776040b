"""What every model has to keep, as a suite of tests that plugins run on theirs; pytest only here.

Face: `model_contract`, for networks `network_contract`.
"""
