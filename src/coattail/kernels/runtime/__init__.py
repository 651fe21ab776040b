"""Where compiled kernels are kept, the threads that run them, the memory they use.

Face: `pool`, `scratch`, `caching`.
"""
