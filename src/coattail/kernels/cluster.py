"""Spherical clustering of sparse unit rows: balanced halves, and k unbalanced clusters."""

import numpy as np
from numba import njit

from coattail.kernels.lanes import LANES, lanes
from coattail.kernels.sparse import below, dot_pair, mix, step


@njit(nogil=True, cache=True)
def _add(rows, members, side, sums):
    """Every member to the sum of its side."""
    indptr, indices, values = rows
    for r in range(members.shape[0]):
        i, own = members[r], side[r]
        for p in range(indptr[i], indptr[i + 1]):
            sums[indices[p], own] += values[p]


@njit(nogil=True, cache=True)
def _clear(rows, members, size, sums):
    """Only words of the members where they are few: a small cluster costs no vocabulary."""
    indptr, indices, _ = rows
    if size > sums.shape[0]:
        sums[:] = 0
        return
    for i in members:
        for p in range(indptr[i], indptr[i + 1]):
            sums[indices[p]] = 0


@njit(nogil=True, cache=True)
def _sides(difference, half, side):
    """0 for the ``half`` smallest differences, ties to the earlier place; 1 for the others."""
    limit = np.partition(difference, half - 1)[half - 1]
    room = half
    for value in difference:
        room -= value < limit
    for r in range(difference.shape[0]):
        tied = difference[r] == limit and room > 0
        room -= tied
        side[r] = 0 if difference[r] < limit or tied else 1


@njit(nogil=True, cache=True)
def halve(indptr, indices, values, sums, members, seed, key, tolerance, max_iterations):
    """Order ``members`` in place so that its first ceil(half) is one cluster, the rest the other.

    Spherical 2-means with balanced sizes: start from two random rows, cut in the middle of the
    differences between the two cosines; stop when the mean cosine gains less than ``tolerance``.
    Rows have length 1; members are in increasing order, and each half will be. ``sums`` (words, 2)
    is scratch of zeros, and left so.
    """
    rows = (indptr, indices, values)
    n = members.shape[0]
    half = (n + 1) // 2
    size = 0
    for i in members:
        size += indptr[i + 1] - indptr[i]
    state = step(mix(seed, key))
    first = below(state, n)
    state = step(state)
    second = (first + 1 + below(state, n - 1)) % n
    side = np.array([0, 1], np.int8)
    _add(rows, np.array([members[first], members[second]]), side, sums)
    side = np.empty(n, np.int8)
    products = np.empty((n, 2), np.float32)
    difference = np.empty(n, np.float32)
    previous = -np.inf
    for turn in range(max_iterations):
        squares = np.zeros(2)  # of the sums: their members' products with them add up to that
        for r in range(n):
            i = members[r]
            row = dot_pair(indices, values, indptr[i], indptr[i + 1], sums)
            products[r, 0], products[r, 1] = row
            if turn > 0:
                squares[side[r]] += products[r, side[r]]
        left, right = np.float32(1.0), np.float32(1.0)
        if squares[0] > 0:
            left = np.float32(1.0 / np.sqrt(squares[0]))
        if squares[1] > 0:
            right = np.float32(1.0 / np.sqrt(squares[1]))
        for r in range(n):
            difference[r] = right * products[r, 1] - left * products[r, 0]
        _sides(difference, half, side)
        mean = 0.0
        for r in range(n):
            mean += left * products[r, 0] if side[r] == 0 else right * products[r, 1]
        mean /= n
        if mean - previous < tolerance:
            break
        previous = mean
        _clear(rows, members, size, sums)
        _add(rows, members, side, sums)
    _clear(rows, members, size, sums)
    members[:] = np.concatenate((members[side == 0], members[side == 1]))


@njit(nogil=True, cache=True)
def halve_each(
    indptr, indices, values, sums, members, bounds, seed, key, tolerance, max_iterations
):
    """``halve`` every cluster ``members[bounds[c]:bounds[c + 1]]``; keys count from ``key``."""
    for c in range(bounds.shape[0] - 1):
        own = members[bounds[c] : bounds[c + 1]]
        halve(indptr, indices, values, sums, own, seed, key + c, tolerance, max_iterations)


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
