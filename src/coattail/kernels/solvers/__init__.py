"""Binary linear problems, compiled: squared hinge (active sets, in lockstep), logistic."""
