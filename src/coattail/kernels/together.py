"""Squared-hinge problems on the same rows, LANES labels side by side: dual descent in step.

The problems are those of ``solver``. Where most rows matter to most labels, as at the nodes of a
tree, sets of rows are no use, and a row that is read once for LANES labels costs little more than
one that is read for one. All labels visit the rows in the same random order; each stops on its own
when its projected gradients are within ``eps``, so that its result does not depend on the others.
Those that have not stopped after TOGETHER epochs go on alone.
"""

import numpy as np
from numba import njit

from coattail.kernels.descent import LINE, NEGLIGIBLE, ask_for_words, descend
from coattail.kernels.sparse import (
    LANES,
    above,
    add_lanes,
    below,
    lanes,
    lowest_bit,
    mix,
    prefetch,
    step,
)
from coattail.kernels.violators import grown

TOGETHER = 12  # epochs
COMPANY = 4  # labels; fewer in a block are better off alone from the start
AHEAD = 2  # visits ahead at which a row is asked for
NEAR = 8192  # words whose weights need not be asked for: they fit a cache


@njit(nogil=True, cache=True)
def _ask_ahead(indptr, indices, values, squares, alpha, order, W, k):
    """Bring near what the visits after the k-th will read; no effect on any value."""
    n = order.shape[0]
    if W.shape[0] > NEAR and k + 1 < n:
        i = order[k + 1]
        for p in range(indptr[i], indptr[i + 1]):
            prefetch(W, indices[p] * LANES)
            prefetch(W, indices[p] * LANES + LINE)
    if k + 2 * AHEAD < n:
        i = order[k + 2 * AHEAD]
        prefetch(indptr, i)
        prefetch(squares, i)
    if k + AHEAD < n:
        i = order[k + AHEAD]
        ask_for_words(indptr, indices, values, i)
        for j in range(0, LANES, LINE):
            prefetch(alpha, i * LANES + j)


@njit(nogil=True, cache=True, error_model="numpy")
def _visit(
    signs, margins, alpha, first, square, half_pos, half_neg, small, moving, extremes, change
):
    """One row for all lanes: new dual variables, what they change, and the range of gradients.

    ``alpha[first:first + LANES]`` belongs to the row; bit j of ``signs`` tells whether it is
    positive for lane j; ``moving`` is 1 for lanes that descend, else 0. True where something moved.
    """
    moved = 0  # an integer: a largest float would keep the loop from being vectorised
    for j in range(LANES):
        positive = np.float32((signs >> np.uint32(j)) & np.uint32(1))
        sign = positive + positive - np.float32(1.0)
        half = positive * half_pos[j] + (np.float32(1.0) - positive) * half_neg[j]
        old = alpha[first + j]
        gradient = sign * margins[j] - np.float32(1.0) + old * half
        projected = gradient if old > 0 else min(gradient, np.float32(0.0))
        extremes[0, j] = max(extremes[0, j], projected)
        extremes[1, j] = min(extremes[1, j], projected)
        new = max(old - gradient / (square + half), np.float32(0.0))
        go = moving[j] if abs(projected) > small else np.float32(0.0)
        delta = go * (new - old)
        alpha[first + j] = old + delta
        change[j] = delta * sign
        moved |= int(delta != 0)
    return moved > 0


@njit(nogil=True, cache=True)
def descend_together(
    indptr, indices, values, squares, signs, half_pos, half_neg, eps, max_epochs, seed,
    alpha, W, bias,
):  # fmt: skip
    """Descent for LANES labels in step; alpha (n * LANES,), W (words, LANES) and bias change.

    Lanes without a label have ``half_pos`` 0. Returns (epochs (LANES,), visits (LANES,)): epochs is
    0 where they did not suffice.
    """
    n = indptr.shape[0] - 1
    order = np.arange(n).astype(np.int32)
    margins, change = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    moving = (half_pos > 0).astype(np.float32)
    extremes = np.empty((2, LANES), np.float32)
    epochs, visits = np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)
    state = mix(seed, n)
    for epoch in range(max_epochs):
        extremes[0] = -np.inf
        extremes[1] = np.inf
        for k in range(n - 1):
            state = step(state)
            j = k + below(state, n - k)
            order[k], order[j] = order[j], order[k]
        for k in range(n):
            _ask_ahead(indptr, indices, values, squares, alpha, order, W, k)
            i = order[k]
            lanes(indices, values, indptr[i], indptr[i + 1], W, bias, margins)
            if _visit(
                signs[i], margins, alpha, i * LANES, squares[i], half_pos, half_neg,
                NEGLIGIBLE * eps, moving, extremes, change,
            ):  # fmt: skip
                add_lanes(indices, values, indptr[i], indptr[i + 1], change, W)
                for j in range(LANES):
                    bias[j] += change[j]
        for j in range(LANES):
            if moving[j] > 0:
                visits[j] += n
                if extremes[0, j] - extremes[1, j] <= eps:
                    moving[j], epochs[j] = 0, epoch + 1
        if not np.any(moving > 0):
            break
    return epochs, visits


@njit(nogil=True, cache=True)
def _sizes(row, sizes):
    """Absolute values of LANES weights."""
    for j in range(LANES):
        sizes[j] = abs(row[j])


@njit(nogil=True, cache=True)
def _emit(W, least, start, stop, words, weights):
    """Weights of at least ``least`` in size, lane after lane, to the end of a growing store.

    ``start`` and ``stop`` (lanes,) receive where each lane's lie; the first begins at ``start[0]``.
    """
    count = np.zeros(LANES, np.int64)
    sizes, floor = np.empty(LANES, np.float32), np.full(LANES, np.nextafter(least, np.float32(0)))
    for f in range(W.shape[0]):
        _sizes(W[f], sizes)
        mask = above(sizes, floor)
        while mask:
            count[lowest_bit(mask)] += 1
            mask &= mask - np.uint64(1)
    stop[:] = start[0] + np.cumsum(count[: start.shape[0]])
    start[1:] = stop[:-1]
    words, weights = grown(words, stop[-1]), grown(weights, stop[-1])
    place = np.zeros(LANES, np.int64)
    place[: start.shape[0]] = start
    for f in range(W.shape[0]):
        _sizes(W[f], sizes)
        mask = above(sizes, floor)
        while mask:
            lane = lowest_bit(mask)
            words[place[lane]], weights[place[lane]] = f, W[f, lane]
            place[lane] += 1
            mask &= mask - np.uint64(1)
    return words, weights


@njit(nogil=True, cache=True)
def train(
    indptr, indices, values, squares, first, positives, keys, c_pos, c_neg,
    seed, eps, max_epochs, prune, w, W,
):  # fmt: skip
    """Train labels on all rows; arguments and results as those of ``solver.train``.

    ``w`` is float32 (words + 1,) and ``W`` float32 (words, LANES), scratch.
    """
    n, g, d = indptr.shape[0] - 1, keys.shape[0], W.shape[0]
    start, stop = np.zeros(g, np.int64), np.zeros(g, np.int64)
    words, weights = np.empty(1024, np.int32), np.empty(1024, np.float32)
    bias, stats = np.zeros(g, np.float32), np.zeros((g, 4))
    alpha, signs = np.empty(n * LANES, np.float32), np.empty(n, np.uint32)
    least = max(prune, np.float32(1e-37))  # a zero is no weight
    for block in range(0, g, LANES):
        size = min(LANES, g - block)
        alpha[:] = 0
        signs[:] = 0
        W[:] = 0
        half_pos, half_neg = np.zeros(LANES, np.float32), np.ones(LANES, np.float32)
        for lane in range(size):
            j = block + lane
            half_pos[lane], half_neg[lane] = 0.5 / c_pos[j], 0.5 / c_neg[j]
            for i in positives[first[j] : first[j + 1]]:
                signs[i] |= np.uint32(1) << np.uint32(lane)
        lane_bias = np.zeros(LANES, np.float32)
        limit = min(TOGETHER, max_epochs) if size >= COMPANY else 0
        epochs, visits = descend_together(
            indptr, indices, values, squares, signs, half_pos, half_neg, eps, limit, seed, alpha, W,
            lane_bias,
        )  # fmt: skip
        for lane in range(size):
            j = block + lane
            stats[j, 1], stats[j, 2] = visits[lane], n
            if epochs[lane] == 0 and max_epochs > limit:
                own = positives[first[j] : first[j + 1]]
                bit = np.uint32(1) << np.uint32(lane)
                members = np.concatenate((own, np.flatnonzero(signs & bit == 0).astype(np.int32)))
                own_alpha = alpha[members.astype(np.int64) * LANES + lane].copy()
                w[:d], w[d] = W[:, lane], lane_bias[lane]
                _, more = descend(
                    indptr, indices, values, squares, members, own_alpha, own.shape[0],
                    half_pos[lane], half_neg[lane], eps, max_epochs - limit, w, keys[j],
                )  # fmt: skip
                W[:, lane], lane_bias[lane] = w[:d], w[d]
                stats[j, 1] += more
        own = slice(block, block + size)
        bias[own] = lane_bias[:size]
        start[block] = stop[block - 1] if block else 0
        words, weights = _emit(W, least, start[own], stop[own], words, weights)
    return start, stop, words[: stop[-1]], weights[: stop[-1]], bias, stats
