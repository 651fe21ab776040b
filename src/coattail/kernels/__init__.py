"""Compiled loops: arrays in, preallocated arrays out. Of our modules they import only `cores`.

Face: every module; `solvers` for binary problems, `runtime` for caches, threads and memory.
"""

from numba import config

# The other layers share OpenMP with torch and leave it with another number of threads.
config.THREADING_LAYER = "workqueue"

if not config.CACHE_LOCATOR_CLASSES:
    config.CACHE_LOCATOR_CLASSES = (
        "coattail.kernels.runtime.caching.ByContent,"
        "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator"
    )
