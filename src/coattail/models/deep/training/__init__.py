"""How one network is fitted: the loop, its start, optimiser, threads, processes."""
