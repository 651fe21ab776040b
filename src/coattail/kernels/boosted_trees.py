"""Regression trees on binned facts, level by level, for gradient boosting.

A tree of depth d is complete: inner node v has the children 2v + 1 and 2v + 2, and there are 2^d
leaves. A node that gains nothing from a split sends everybody left.
"""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def grow(bins, n_bins, gradient, hessian, depth, ridge, least, fact, cut, value, leaf):
    """One tree; rows go right of ``cut`` if their bin of ``fact`` is larger.

    bins (n, m) uint8; gradient, hessian (n,). Into fact, cut (2^depth - 1,), value (2^depth,), the
    Newton step of every leaf, and leaf (n,), where every row ended. A side of a split holds a
    hessian of at least ``least``; ``ridge``, above 0, is added to it.
    """
    n, m = bins.shape
    leaf[:] = 0
    fact[:] = 0
    cut[:] = n_bins
    for level in range(depth):
        width = 1 << level
        sums = np.zeros((width, m, n_bins, 2))
        for i in range(n):
            own = sums[leaf[i]]
            for j in range(m):
                cell = own[j, bins[i, j]]
                cell[0] += gradient[i]
                cell[1] += hessian[i]
        for node in range(width):
            _split(sums[node], ridge, least, width - 1 + node, fact, cut)
        for i in range(n):
            at = width - 1 + leaf[i]
            leaf[i] = 2 * leaf[i] + (bins[i, fact[at]] > cut[at])
    top, bottom = np.zeros(value.shape[0]), np.zeros(value.shape[0])
    for i in range(n):
        top[leaf[i]] += gradient[i]
        bottom[leaf[i]] += hessian[i]
    value[:] = -top / (bottom + ridge)


@njit(nogil=True, cache=True)
def _split(sums, ridge, least, at, fact, cut):
    """The best fact and bin of one node; ties to the first."""
    g, h = sums[0, :, 0].sum(), sums[0, :, 1].sum()
    best = g * g / (h + ridge) * (1 + 1e-9) + 1e-9
    for j in range(sums.shape[0]):
        left_g = left_h = 0.0
        for b in range(sums.shape[1] - 1):
            left_g += sums[j, b, 0]
            left_h += sums[j, b, 1]
            right_g, right_h = g - left_g, h - left_h
            if left_h < least or right_h < least:
                continue
            gain = left_g * left_g / (left_h + ridge) + right_g * right_g / (right_h + ridge)
            if gain > best:
                best = gain
                fact[at] = j
                cut[at] = b


@njit(nogil=True, cache=True)
def add_up(facts, fact, threshold, value, out):
    """Sum of all trees' leaves for every row: facts (n, m), trees first in the other arrays."""
    inner = fact.shape[1]
    for i in range(facts.shape[0]):
        total = 0.0
        for t in range(fact.shape[0]):
            v = 0
            while v < inner:
                v = 2 * v + 1 + (facts[i, fact[t, v]] > threshold[t, v])
            total += value[t, v - inner]
        out[i] = total
