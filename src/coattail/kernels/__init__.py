"""Numba kernels: plain arrays in, preallocated arrays out; they import nothing of ours."""

from numba import config

if not config.CACHE_LOCATOR_CLASSES:
    config.CACHE_LOCATOR_CLASSES = (
        "coattail.kernels.caching.ByContent,"
        "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator"
    )
