"""Spherical clustering of sparse unit rows: balanced halves, and k unbalanced clusters."""

import numpy as np
from numba import njit

from coattail.kernels.sparse import LANES, axpy, below, dot, lanes, mix, step


@njit(nogil=True, cache=True)
def _add(rows, members, w):
    indptr, indices, values = rows
    for i in members:
        axpy(indices, values, indptr[i], indptr[i + 1], np.float32(1.0), w)


@njit(nogil=True, cache=True)
def _clear(rows, members, left, right):
    """Only words of the members: a small cluster costs little in a large vocabulary."""
    indptr, indices, _ = rows
    for i in members:
        for p in range(indptr[i], indptr[i + 1]):
            left[indices[p]] = 0
            right[indices[p]] = 0


@njit(nogil=True, cache=True)
def _products(rows, members, left, right, out):
    """Products of every member with both centres, (n, 2)."""
    indptr, indices, values = rows
    for r in range(members.shape[0]):
        i = members[r]
        out[r, 0] = dot(indices, values, indptr[i], indptr[i + 1], left)
        out[r, 1] = dot(indices, values, indptr[i], indptr[i + 1], right)


@njit(nogil=True, cache=True)
def _unit(products):
    """What makes a centre's length 1: its members' products with it add up to its square."""
    total = 0.0
    for product in products:
        total += product
    return np.float32(1.0 / np.sqrt(total)) if total > 0 else np.float32(1.0)


@njit(nogil=True, cache=True)
def halve(indptr, indices, values, left, right, members, seed, key, tolerance, max_iterations):
    """Order ``members`` in place so that its first ceil(half) is one cluster, the rest the other.

    Spherical 2-means with balanced sizes: start from two random rows, sort by the difference of
    the two cosines, cut in the middle; stop when the mean cosine gains less than ``tolerance``.
    Rows have length 1. ``left`` and ``right`` (words,) are scratch of zeros, and left so.
    """
    rows = (indptr, indices, values)
    n = members.shape[0]
    half = (n + 1) // 2
    state = step(mix(seed, key))
    first = below(state, n)
    state = step(state)
    second = (first + 1 + below(state, n - 1)) % n
    _add(rows, members[first : first + 1], left)
    _add(rows, members[second : second + 1], right)
    products = np.empty((n, 2), np.float32)
    scales = (np.float32(1.0), np.float32(1.0))
    difference = np.empty(n, np.float32)
    previous = -np.inf
    for turn in range(max_iterations):
        _products(rows, members, left, right, products)
        if turn > 0:  # the centres are sums of the halves of the turn before
            scales = (_unit(products[:half, 0]), _unit(products[half:, 1]))
        for r in range(n):
            difference[r] = scales[1] * products[r, 1] - scales[0] * products[r, 0]
        order = np.argsort(difference, kind="mergesort")
        members[:] = members[order]
        mean = 0.0
        for r in range(n):
            side = 0 if r < half else 1
            mean += scales[side] * products[order[r], side]
        mean /= n
        if mean - previous < tolerance:
            break
        previous = mean
        _clear(rows, members, left, right)
        _add(rows, members[:half], left)
        _add(rows, members[half:], right)
    _clear(rows, members, left, right)
    # Labels of a cluster in increasing order: the tree does not depend on the last permutation.
    members[:half].sort()
    members[half:].sort()


@njit(nogil=True, cache=True)
def centres(indptr, indices, values, members, cluster, block, W):
    """Unit centres of clusters ``block * LANES ...`` as the columns of W (words, LANES)."""
    W[:] = 0
    for r in range(members.shape[0]):
        if cluster[r] // LANES == block:
            j = cluster[r] % LANES
            i = members[r]
            for p in range(indptr[i], indptr[i + 1]):
                W[indices[p], j] += values[p]
    squares = np.zeros(LANES)
    for f in range(W.shape[0]):
        for j in range(LANES):
            squares[j] += W[f, j] * W[f, j]
    scale = np.ones(LANES, np.float32)
    for j in range(LANES):
        if squares[j] > 0:
            scale[j] = 1.0 / np.sqrt(squares[j])
    for f in range(W.shape[0]):
        for j in range(LANES):
            W[f, j] *= scale[j]


@njit(nogil=True, cache=True)
def nearest(indptr, indices, values, members, W, allowed, cluster, cosine):
    """Cluster of the largest cosine for every row, ties to the smaller cluster.

    W is (blocks, words, LANES); ``allowed`` (blocks * LANES,) marks clusters that exist.
    """
    scores = np.zeros(LANES, np.float32)
    zero = np.zeros(LANES, np.float32)
    for r in range(members.shape[0]):
        i = members[r]
        best = -1
        top = np.float32(-np.inf)
        for b in range(W.shape[0]):
            lanes(indices, values, indptr[i], indptr[i + 1], W[b], zero, scores)
            for j in range(LANES):
                if allowed[b * LANES + j] and scores[j] > top:
                    top = scores[j]
                    best = b * LANES + j
        cluster[r] = best
        cosine[r] = top
