"""Binary linear problems, compiled: squared hinge (by active sets, in lockstep), logistic.

Face: `active_set.train`, `lockstep`, `logistic`.
"""
