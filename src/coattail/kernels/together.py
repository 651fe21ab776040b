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
    add_lanes,
    below,
    count_bits,
    grown,
    lanes,
    large,
    lowest_bit,
    mix,
    prefetch,
    step,
    visit_lanes,
)

TOGETHER = 12  # epochs
COMPANY = 4  # labels; fewer in a block are better off alone from the start
AHEAD = 2  # visits ahead at which a row is asked for


@njit(nogil=True, cache=True)
def _ask_ahead(indptr, indices, values, squares, alpha, order, k):
    """Bring near what the visits after the k-th will read; no effect on any value."""
    n = order.shape[0]
    if k + 2 * AHEAD < n:
        i = order[k + 2 * AHEAD]
        prefetch(indptr, i)
        prefetch(squares, i)
    if k + AHEAD < n:
        i = order[k + AHEAD]
        ask_for_words(indptr, indices, values, i)
        for j in range(0, LANES, LINE):
            prefetch(alpha, i * LANES + j)


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
            _ask_ahead(indptr, indices, values, squares, alpha, order, k)
            i = order[k]
            lanes(indices, values, indptr[i], indptr[i + 1], W, bias, margins)
            if visit_lanes(
                signs[i], margins, squares[i], half_pos, half_neg, NEGLIGIBLE * eps, moving, alpha,
                i * LANES, extremes, change, bias,
            ):  # fmt: skip
                add_lanes(indices, values, indptr[i], indptr[i + 1], change, W)
        for j in range(LANES):
            if moving[j] > 0:
                visits[j] += n
                if extremes[0, j] - extremes[1, j] <= eps:
                    moving[j], epochs[j] = 0, epoch + 1
        if not np.any(moving > 0):
            break
    return epochs, visits


@njit(nogil=True, cache=True)
def _emit(W, order, least, counts, used, owner, weights):
    """Weights of at least ``least`` in size, word by word, to the end of a growing store.

    ``order`` lists the words; ``counts`` (words,) receives how many weights each has. Returns the
    new length of the store, and the store.
    """
    last = np.uint64(1) << np.uint64(LANES - 1)
    for s in range(order.shape[0]):
        if used + LANES > owner.shape[0]:
            owner, weights = grown(owner, used + LANES), grown(weights, used + LANES)
        f = order[s]
        mask = large(W, f * LANES, least)
        # Most words have none or one, which cannot be guessed: two are written in any case.
        count = count_bits(mask)
        for k in range(2):
            j = lowest_bit(mask | last)
            owner[used + k], weights[used + k] = j, W[f, j]
            mask &= mask - np.uint64(1)
        for k in range(2, count):
            j = lowest_bit(mask)
            owner[used + k], weights[used + k] = j, W[f, j]
            mask &= mask - np.uint64(1)
        counts[s] = count
        used += count
    return used, owner, weights


@njit(nogil=True, cache=True)
def train(
    indptr, indices, values, squares, first, positives, keys, c_pos, c_neg,
    seed, eps, max_epochs, prune, order, w, W, alpha, owner, weights,
):  # fmt: skip
    """Train labels on all rows; returns (counts, used, owner, weights, bias, stats).

    Arguments are those of ``solver.train``; ``order`` (words,) lists the words as their weights
    shall lie; ``w`` (words + 1,), ``W`` (words, LANES) and ``alpha`` (n * LANES,) are float32
    scratch, W of zeros, and left so. The first ``used`` of ``weights``, which grows where it is too
    short, belong to the labels ``owner`` within their block: block after block of LANES labels, and
    there word after word, so many as ``counts`` (blocks, words) tells. bias and stats are those of
    the solver.
    """
    n, g, d = indptr.shape[0] - 1, keys.shape[0], W.shape[0]
    counts = np.empty(((g + LANES - 1) // LANES, order.shape[0]), np.uint8)
    bias, stats, used = np.zeros(g, np.float32), np.zeros((g, 4)), 0
    signs = np.empty(n, np.uint32)
    least = max(prune, np.float32(1e-37))  # a zero is no weight
    for block in range(0, g, LANES):
        size = min(LANES, g - block)
        alpha[:] = 0
        signs[:] = 0
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
        used, owner, weights = _emit(W, order, least, counts[block // LANES], used, owner, weights)
        W[:] = 0
    return counts, used, owner, weights, bias, stats


@njit(nogil=True, cache=True)
def turn(counts, owner, weights, order, numbers, first, words, entries, child, weight):
    """What ``train`` returns, word by word over all blocks; returns the number of words used.

    ``numbers[order]`` are the words, whose used ones go to ``words`` with their ``entries``;
    ``child`` receives labels, counted from ``first``, and ``weight`` their weights.
    """
    n_blocks, d = counts.shape
    at = np.zeros(n_blocks, np.int64)  # where each block goes on
    for b in range(1, n_blocks):
        at[b] = at[b - 1]
        for s in range(d):
            at[b] += counts[b - 1, s]
    out, found = 0, 0
    for s in range(d):
        begin = out
        for b in range(n_blocks):
            for e in range(at[b], at[b] + counts[b, s]):
                child[out], weight[out] = first + b * LANES + owner[e], weights[e]
                out += 1
            at[b] += counts[b, s]
        words[found], entries[found] = numbers[order[s]], out - begin
        found += out > begin
    return found
