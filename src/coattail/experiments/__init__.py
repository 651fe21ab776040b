"""More than one run: queue, tune, compare, exchange, trace back.

Face: `queue.run_all`, `tune.tune`, `compare.compare`, `exchange`, `lineage`.
"""
