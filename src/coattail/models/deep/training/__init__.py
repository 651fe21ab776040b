"""How one network is fitted: where it starts, the loop, the optimiser, processes.

Face: `fitting`, `loop.train`, `processes`, `curve.write`.
"""
