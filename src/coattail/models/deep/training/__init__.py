"""How one network is fitted: first weights, the loop, the optimiser, checkpoints, processes.

Face: `fitting`, `loop` (a course and who follows it), `checkpoint`, `processes`, `curve.write`.
"""
