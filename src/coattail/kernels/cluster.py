"""Spherical clustering of sparse unit rows: balanced halves, and k unbalanced clusters."""

import numpy as np
from numba import njit

from coattail.kernels.sparse import LANES, axpy, below, dot, lanes, mix, step


@njit(nogil=True, cache=True)
def _sum(indptr, indices, values, members, w):
    """Add up rows into w (zero before); returns what makes its length 1.

    Only words of the members are touched: a small cluster costs little in a large vocabulary.
    """
    for i in members:
        axpy(indices, values, indptr[i], indptr[i + 1], np.float32(1.0), w)
    total = 0.0
    for i in members:
        total += dot(indices, values, indptr[i], indptr[i + 1], w)
    return np.float32(1.0 / np.sqrt(total)) if total > 0 else np.float32(1.0)


@njit(nogil=True, cache=True)
def _clear(indptr, indices, members, w):
    for i in members:
        for p in range(indptr[i], indptr[i + 1]):
            w[indices[p]] = 0


@njit(nogil=True, cache=True)
def halve(indptr, indices, values, left, right, members, seed, key, tolerance, max_iterations):
    """Order ``members`` in place so that its first ceil(half) is one cluster, the rest the other.

    Spherical 2-means with balanced sizes: start from two random rows, sort by the difference of
    the two cosines, cut in the middle; stop when the mean cosine gains less than ``tolerance``.
    ``left`` and ``right`` (words,) are scratch of zeros, and left so.
    """
    n = members.shape[0]
    half = (n + 1) // 2
    state = step(mix(seed, key))
    first = below(state, n)
    state = step(state)
    second = (first + 1 + below(state, n - 1)) % n
    left_scale = _sum(indptr, indices, values, members[first : first + 1], left)
    right_scale = _sum(indptr, indices, values, members[second : second + 1], right)
    to_left = np.empty(n, np.float32)
    to_right = np.empty(n, np.float32)
    previous = -np.inf
    for _ in range(max_iterations):
        for r in range(n):
            i = members[r]
            to_left[r] = left_scale * dot(indices, values, indptr[i], indptr[i + 1], left)
            to_right[r] = right_scale * dot(indices, values, indptr[i], indptr[i + 1], right)
        order = np.argsort(to_right - to_left, kind="mergesort")
        members[:] = members[order]
        mean = 0.0
        for r in range(n):
            mean += to_left[order[r]] if r < half else to_right[order[r]]
        mean /= n
        if mean - previous < tolerance:
            break
        previous = mean
        _clear(indptr, indices, members, left)
        _clear(indptr, indices, members, right)
        left_scale = _sum(indptr, indices, values, members[:half], left)
        right_scale = _sum(indptr, indices, values, members[half:], right)
    _clear(indptr, indices, members, left)
    _clear(indptr, indices, members, right)
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
