"""Squared-hinge problems on the same rows, many labels side by side: dual descent in step.

The problems are those of ``solver``. Where most rows matter to most labels, as at the nodes of a
tree, sets of rows are no use, and a row that is read once for 32 labels costs little more than
one that is read for one. All labels visit the rows in the same random order; each stops on its own
when its projected gradients are within ``eps``, so that its result does not depend on the others.
Those that have not stopped after TOGETHER epochs go on alone.

There are LANES labels in a block, but the last ones, where they are FEW, have a block of that many
lanes: less to read and write, and the weights of a large node fit a cache. ``signs`` tells by its
type which (``width``): bit j of a row's is set where the row is positive for lane j.

Most words of a small node are in one of its rows only. The weights of such a word are its value
times the row's dual variables, which are kept with their signs (``alpha``), so nobody has to keep
them: the descent reads and writes shared words alone, and what a row's own words add to its margin
is one number (``own``, the sum of their squares) times its dual variable.
"""

import numpy as np
from numba import njit

from coattail.kernels.lanes import LANES, add_lanes, large, sum_lanes, visit_lanes, width
from coattail.kernels.solvers.descent import LINE, NEGLIGIBLE, ask_for_words, descend
from coattail.kernels.sparse import below, count_bits, grown, lowest_bit, mix, prefetch, step

TOGETHER = 12  # epochs
FEW = 8  # lanes of a narrow block; every further width would compile as long as all others do
COMPANY = 4  # labels; fewer in a block are better off alone from the start
# Most words have none or one weight, which cannot be guessed: so many are written in any case.
AT_ONCE = 2
AHEAD = 2  # visits ahead at which a row is asked for


@njit(nogil=True, cache=True)
def _ask_ahead(indptr, middle, indices, values, squares, own, signs, alpha, order, k):
    """Bring near what the visits after the k-th will read; no effect on any value."""
    n, lanes = order.shape[0], width(signs)
    if k + 2 * AHEAD < n:
        i = order[k + 2 * AHEAD]
        prefetch(indptr, i)
        prefetch(middle, i)
        prefetch(squares, i)
        prefetch(own, i)
    if k + AHEAD < n:
        i = order[k + AHEAD]
        ask_for_words(indices, values, indptr[i], middle[i])
        for j in range(0, lanes, LINE):
            prefetch(alpha, i * lanes + j)


@njit(nogil=True, cache=True)
def descend_together(
    indptr, middle, indices, values, squares, own, signs, half_pos, half_neg, eps, max_epochs, seed,
    alpha, W, bias,
):  # fmt: skip
    """Descent for labels in step; alpha (n * lanes,), W (shared * lanes,) and bias change.

    Lanes without a label have ``half_pos`` 0. Returns (epochs (lanes,), visits (lanes,)): epochs is
    0 where they did not suffice.
    """
    n, lanes = indptr.shape[0] - 1, width(signs)
    order = np.arange(n).astype(np.int32)
    margins, change = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    moving = (half_pos > 0).astype(np.float32)
    extremes = np.empty((2, lanes), np.float32)
    epochs, visits = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    state = mix(seed, n)
    for epoch in range(max_epochs):
        extremes[0] = -np.inf
        extremes[1] = np.inf
        for k in range(n - 1):
            state = step(state)
            j = k + below(state, n - k)
            order[k], order[j] = order[j], order[k]
        for k in range(n):
            _ask_ahead(indptr, middle, indices, values, squares, own, signs, alpha, order, k)
            i = order[k]
            sum_lanes(indices, values, indptr[i], middle[i], W, bias, margins, signs[i])
            if visit_lanes(
                signs[i], margins, squares[i], own[i], half_pos, half_neg, NEGLIGIBLE * eps, moving,
                alpha, i * lanes, extremes, change, bias,
            ):  # fmt: skip
                add_lanes(indices, values, indptr[i], middle[i], change, W, signs[i])
        for j in range(lanes):
            if moving[j] > 0:
                visits[j] += n
                if extremes[0, j] - extremes[1, j] <= eps:
                    moving[j], epochs[j] = 0, epoch + 1
        if not np.any(moving > 0):
            break
    return epochs, visits


@njit(nogil=True, cache=True)
def _emit(indptr, middle, indices, values, signs, alpha, W, least, first, counts, found):
    """Weights of at least ``least`` in size to the end of a growing store; W becomes zero.

    ``found`` is (used, word, label, weight): of each weight its word and label, the labels counted
    from ``first``. ``counts`` (words,) grows by the weights of each word. Returns the new store.
    """
    used, word, label, weight = found
    lanes, any_signs = width(signs), signs.dtype.type(0)
    last = np.uint64(1) << np.uint64(lanes - 1)
    for f in range(W.shape[0] // lanes):
        if used + lanes > word.shape[0]:
            word, label, weight = _larger(word, label, weight)
        mask = large(W, f * lanes, np.float32(1.0), least, any_signs)
        count = count_bits(mask)
        for k in range(max(count, AT_ONCE)):
            j = lowest_bit(mask | last)
            word[used + k], label[used + k], weight[used + k] = f, first + j, W[f * lanes + j]
            mask &= mask - np.uint64(1)
        used += count
        counts[f] += count
        for j in range(lanes):
            W[f * lanes + j] = 0
    for i in range(middle.shape[0]):
        begin, end, largest = middle[i], indptr[i + 1], np.float32(0.0)
        for p in range(begin, end):
            largest = max(largest, abs(values[p]))
        mask = large(alpha, i * lanes, largest, least, any_signs)
        while mask != 0:
            j = lowest_bit(mask)
            mask &= mask - np.uint64(1)
            while used + end - begin > word.shape[0]:
                word, label, weight = _larger(word, label, weight)
            for p in range(begin, end):  # all are written, those that are too small once more
                word[used], label[used] = indices[p], first + j
                weight[used] = values[p] * alpha[i * lanes + j]
                kept = abs(weight[used]) >= least
                used += kept
                counts[indices[p]] += kept
    return used, word, label, weight


@njit(nogil=True, cache=True)
def _larger(word, label, weight):
    """Copies of a store with twice the room."""
    room = 2 * word.shape[0] + LANES
    return grown(word, room), grown(label, room), grown(weight, room)


@njit(nogil=True, cache=True)
def _go_on_alone(
    indptr, middle, indices, values, squares, signs, lane, own, half_pos, half_neg, eps, max_epochs,
    key, alpha, W, bias, w,
):  # fmt: skip
    """Further epochs for one lane, on all words; alpha, W and bias change. Returns the visits."""
    n, lanes, d = middle.shape[0], width(signs), w.shape[0] - 1
    n_shared = W.shape[0] // lanes
    bit = signs.dtype.type(1 << lane)
    members = np.concatenate((own, np.flatnonzero(signs & bit == 0).astype(np.int32)))
    dual = np.empty(n, np.float32)
    w[:n_shared], w[d] = W[lane::lanes], bias[lane]
    for k in range(n):
        i = np.int64(members[k])
        signed = alpha[i * lanes + lane]
        dual[k] = abs(signed)
        for p in range(middle[i], indptr[i + 1]):
            w[indices[p]] = values[p] * signed
    _, visits = descend(
        indptr, indices, values, squares, members, dual, own.shape[0], half_pos, half_neg, eps,
        max_epochs, w, key,
    )  # fmt: skip
    W[lane::lanes], bias[lane] = w[:n_shared], w[d]
    for k in range(n):
        alpha[np.int64(members[k]) * lanes + lane] = dual[k] if k < own.shape[0] else -dual[k]
    return visits


@njit(nogil=True, cache=True)
def _train_block(
    signs, start, stop, indptr, middle, indices, values, squares, own, first, positives, keys,
    c_pos, c_neg, seed, eps, max_epochs, least, counts, w, all_W, all_alpha, bias, stats, found,
):  # fmt: skip
    """Labels start..stop, at most as many as ``signs`` has bits; returns the new store."""
    n, lanes = middle.shape[0], width(signs)
    W, alpha = all_W[: all_W.shape[0] // LANES * lanes], all_alpha[: n * lanes]
    alpha[:] = 0
    signs[:] = 0
    half_pos, half_neg = np.zeros(lanes, np.float32), np.ones(lanes, np.float32)
    for j in range(start, stop):
        half_pos[j - start], half_neg[j - start] = 0.5 / c_pos[j], 0.5 / c_neg[j]
        for i in positives[first[j] : first[j + 1]]:
            signs[i] |= signs.dtype.type(1 << (j - start))
    lane_bias = np.zeros(lanes, np.float32)
    limit = min(TOGETHER, max_epochs) if stop - start >= COMPANY else 0
    epochs, visits = descend_together(
        indptr, middle, indices, values, squares, own, signs, half_pos, half_neg, eps, limit, seed,
        alpha, W, lane_bias,
    )  # fmt: skip
    for j in range(start, stop):
        lane = j - start
        stats[j, 1], stats[j, 2] = visits[lane], n
        if epochs[lane] == 0 and max_epochs > limit:
            stats[j, 1] += _go_on_alone(
                indptr, middle, indices, values, squares, signs, lane,
                positives[first[j] : first[j + 1]], half_pos[lane], half_neg[lane], eps,
                max_epochs - limit, keys[j], alpha, W, lane_bias, w,
            )  # fmt: skip
    bias[start:stop] = lane_bias[: stop - start]
    return _emit(indptr, middle, indices, values, signs, alpha, W, least, start, counts, found)


@njit(nogil=True, cache=True)
def train(
    indptr, middle, indices, values, squares, own, first, positives, keys, c_pos, c_neg,
    seed, eps, max_epochs, prune, counts, w, W, alpha, word, label, weight,
):  # fmt: skip
    """Train labels on all rows; returns (used, word, label, weight, bias, stats).

    Rows are those of ``compact_rows.set_apart``; labels as for ``active_set.train``. ``w`` (words +
    1,), ``W`` (shared words * LANES,) and ``alpha`` (n * LANES,) are float32 scratch, W of
    zeros, and left so. The first ``used`` of ``weight``, which grows where it is too short, belong
    to the words ``word`` and the labels ``label``, those of a word in the order of labels;
    ``counts`` (words,), zero before, tells how many each has. bias and stats are those of the
    solver.
    """
    n, g = middle.shape[0], keys.shape[0]
    bias, stats, found = np.zeros(g, np.float32), np.zeros((g, 4)), (0, word, label, weight)
    signs = np.empty(n, np.uint32)
    least = max(prune, np.float32(1e-37))  # a zero is no weight
    rows = (indptr, middle, indices, values, squares, own)
    labels = (first, positives, keys, c_pos, c_neg)
    limits, memory = (seed, eps, max_epochs, least), (counts, w, W, alpha, bias, stats)
    for start in range(0, g, LANES):
        stop = min(start + LANES, g)
        if stop - start <= FEW:
            few = signs.view(np.uint8)[:n]
            found = _train_block(few, start, stop, *rows, *labels, *limits, *memory, found)
        else:
            found = _train_block(signs, start, stop, *rows, *labels, *limits, *memory, found)
    used, word, label, weight = found
    return used, word, label, weight, bias, stats


@njit(nogil=True, cache=True)
def by_word(counts, word, label, weight, order, numbers, first, words, entries, child, turned):
    """Put the weights of ``train`` in the order of their words.

    ``order`` lists all words as they shall lie, ``numbers`` (words,) are their names; those that
    have a weight go to ``words`` with their ``entries``. ``child`` receives the labels, counted
    from ``first``, and ``turned`` their weights.
    """
    at = np.empty(order.shape[0], np.int64)  # where the next weight of a word goes
    begin, found = 0, 0
    for f in order:
        at[f] = begin
        begin += counts[f]
        if counts[f] > 0:
            words[found], entries[found] = numbers[f], counts[f]
            found += 1
    for e in range(begin):
        place = at[word[e]]
        at[word[e]] = place + 1
        child[place], turned[place] = first + label[e], weight[e]
