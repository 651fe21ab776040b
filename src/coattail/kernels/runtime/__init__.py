"""Where compiled kernels are cached, which threads run them, and the memory they work in.

Face: `pool`, `scratch`, `caching`.
"""
