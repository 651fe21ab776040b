"""Squared-hinge problems on the same rows, many labels side by side: dual descent in step.

The problems are those of ``active_set``. Where most rows matter to most labels, as at the nodes of
a tree, sets of rows are no use, and reading a row for 32 labels at once costs little more than
reading it for one. All labels visit the rows in the same random order. Each label stops when its
own projected gradients are within ``eps``, so its result does not depend on the others. Labels that
have not stopped after TOGETHER epochs go on alone.

A block has LANES labels. If FEW or fewer are left at the end, they get a block of that many lanes:
less to read and write, and the weights of a large node fit a cache. The integer type of ``signs``
tells how many lanes a block has (``width``): bit j of a row's is set if the row is positive for
lane j.

Most words of a small node occur in one of its rows only. The weight of such a word is its value
times the row's dual variable, so it need not be stored. The descent reads and writes shared words
alone; what a row's own words add to its margin is their sum of squares (``own``) times its dual
variable. Dual variables are kept with their signs (``alpha``).
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from coattail.kernels.lanes import LANES, add_lanes, large, sum_lanes, visit_lanes, width
from coattail.kernels.solvers.descent import LINE, NEGLIGIBLE, ask_for_words, descend, shuffle
from coattail.kernels.solvers.problems import Rows
from coattail.kernels.sparse import count_bits, grown, lowest_bit, mix, prefetch

TOGETHER = 12  # epochs
FEW = 8  # lanes of a narrow block; every further width would compile as long as all others do
COMPANY = 4  # labels; fewer in a block are better off alone from the start
# Most words have none or one weight, which cannot be guessed: so many are written in any case.
AT_ONCE = 2
AHEAD = 2  # visits ahead at which a row is asked for


class SplitRows(NamedTuple):
    """Rows of a node as ``compact_rows.set_apart`` leaves them: shared words first."""

    indptr: np.ndarray  # int64 (n + 1,)
    middle: np.ndarray  # int64 (n,), where the shared words of a row end
    indices: np.ndarray  # int32
    values: np.ndarray  # float32
    squares: np.ndarray  # float32 (n,), |x_i|^2 + 1
    own: np.ndarray  # float32 (n,), sum of squares of the words that only this row has


class LockstepLimits(NamedTuple):
    """How far to go."""

    seed: int  # of the order of the rows
    eps: np.float32  # spread of projected gradients at which a label has converged
    max_epochs: int
    prune: np.float32  # weights smaller than this are dropped


class LockstepMemory(NamedTuple):
    """Scratch, float32. W must hold zeros, and does so again afterwards."""

    w: np.ndarray  # (words + 1,)
    W: np.ndarray  # (shared words * LANES,)
    alpha: np.ndarray  # (n * LANES,)


class WeightStore(NamedTuple):
    """Weights as they are found: the first ``used`` belong to the words and labels beside them."""

    used: int
    word: np.ndarray  # int32
    label: np.ndarray  # uint16
    weight: np.ndarray  # float32


class LaneBlock(NamedTuple):
    """State of a block of labels, one lane each."""

    signs: np.ndarray  # uint8 or uint32 (n,), bit j: the row is positive for lane j
    half_pos: np.ndarray  # float32 (lanes,), 1/(2C) of positive rows; 0 in a lane without a label
    half_neg: np.ndarray  # float32 (lanes,)
    alpha: np.ndarray  # float32 (n * lanes,), dual variables times signs
    W: np.ndarray  # float32 (shared * lanes,)
    bias: np.ndarray  # float32 (lanes,)


@njit(nogil=True, cache=True)
def train(rows, labels, limits, memory, counts, store):
    """Train ``labels`` (`problems.Labels`) on all rows; returns (store, bias, stats).

    The weights of the answer's store, which is a larger one if they need more room, lie word by
    word as ``by_word`` takes them: ``counts`` (words,), zero before, tells how many each word has.
    bias and stats are those of `problems.Answer`.
    """
    n, g = rows.own.shape[0], labels.keys.shape[0]
    bias, stats = np.zeros(g, np.float32), np.zeros((g, 5))
    signs = np.empty(n, np.uint32)
    store = WeightStore(0, store.word, store.label, store.weight)
    for start in range(0, g, LANES):
        stop = min(start + LANES, g)
        some, told = (start, stop), (bias[start:stop], stats[start:stop])
        if stop - start <= FEW:
            few = signs.view(np.uint8)[:n]
            store = _train_block(rows, labels, few, some, limits, memory, told, counts, store)
        else:
            store = _train_block(rows, labels, signs, some, limits, memory, told, counts, store)
    return store, bias, stats


@njit(nogil=True, cache=True)
def _train_block(rows, labels, signs, some, limits, memory, told, counts, store):
    """Labels some[0]..some[1], at most as many as ``signs`` has bits; returns the new store."""
    first, n_labels = some[0], some[1] - some[0]
    bias, stats = told
    block = _block(labels, signs, first, n_labels, memory)
    together = min(TOGETHER, limits.max_epochs) if n_labels >= COMPANY else 0
    epochs, visits = descend_together(rows, block, limits.eps, together, limits.seed)
    for lane in range(n_labels):
        stats[lane, 1], stats[lane, 2] = visits[lane], rows.own.shape[0]
        enough = epochs[lane]
        if enough == 0 and limits.max_epochs > together:
            further = (limits.eps, limits.max_epochs - together)
            enough, more = _go_on_alone(rows, labels, block, first + lane, lane, further, memory.w)
            stats[lane, 1] += more
        stats[lane, 4] = enough == 0
    bias[:] = block.bias[:n_labels]
    return emit(rows, block, limits.prune, first, counts, store)


@njit(nogil=True, cache=True, inline="always")
def _block(labels, signs, first, n_labels, memory):
    """State of the block of some labels before the first visit."""
    lanes = width(signs)
    half_pos, half_neg = np.zeros(lanes, np.float32), np.ones(lanes, np.float32)
    signs[:] = 0
    for lane in range(n_labels):
        j = first + lane
        half_pos[lane], half_neg[lane] = 0.5 / labels.c_pos[j], 0.5 / labels.c_neg[j]
        for i in labels.positives[labels.first[j] : labels.first[j + 1]]:
            signs[i] |= signs.dtype.type(1 << lane)
    alpha = memory.alpha[: signs.shape[0] * lanes]
    alpha[:] = 0
    W = memory.W[: memory.W.shape[0] // LANES * lanes]
    return LaneBlock(signs, half_pos, half_neg, alpha, W, np.zeros(lanes, np.float32))


@njit(nogil=True, cache=True)
def descend_together(rows, block, eps, max_epochs, seed):
    """Descent for labels in step; the block's alpha, W and bias change.

    Returns (epochs (lanes,), visits (lanes,)): epochs is 0 where they did not suffice.
    """
    n, lanes = rows.own.shape[0], width(block.signs)
    order = np.arange(n).astype(np.int32)
    moving = (block.half_pos > 0).astype(np.float32)
    extremes = np.empty((2, lanes), np.float32)
    epochs, visits = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    state = mix(seed, n)
    for epoch in range(max_epochs):
        state = shuffle(order, n, state)
        extremes[0] = -np.inf
        extremes[1] = np.inf
        _epoch(rows, block, order, NEGLIGIBLE * eps, moving, extremes)
        for j in range(lanes):
            if moving[j] > 0:
                visits[j] += n
                if extremes[0, j] - extremes[1, j] <= eps:
                    moving[j], epochs[j] = 0, epoch + 1
        if not np.any(moving > 0):
            break
    return epochs, visits


@njit(nogil=True, cache=True, inline="always")
def _epoch(rows, block, order, small, moving, extremes):
    """Visit all rows once for all lanes; ``extremes`` widens to hold the projected gradients."""
    # Taken out once: each look into a tuple counts a reference, which threads would wait for.
    indptr, middle, indices, values, squares, own = rows
    signs, half_pos, half_neg, alpha, W, bias = block
    lanes = width(signs)
    margins, change = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    for k in range(order.shape[0]):
        _ask_ahead(indptr, middle, indices, values, squares, own, signs, alpha, order, k)
        i = order[k]
        sum_lanes(indices, values, indptr[i], middle[i], W, bias, margins, signs[i])
        if visit_lanes(
            signs[i], margins, squares[i], own[i], half_pos, half_neg, small, moving,
            alpha, i * lanes, extremes, change, bias,
        ):  # fmt: skip
            add_lanes(indices, values, indptr[i], middle[i], change, W, signs[i])


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
def _go_on_alone(rows, labels, block, j, lane, limits, w):
    """Further epochs for label j in its lane, on all words; the block's state changes.

    Returns epochs, 0 where they did not suffice, and visits.
    """
    indptr, middle, indices, values, squares, _ = rows
    signs, lanes, n, d = block.signs, width(block.signs), middle.shape[0], w.shape[0] - 1
    alpha, W, n_shared = block.alpha, block.W, block.W.shape[0] // lanes
    own = labels.positives[labels.first[j] : labels.first[j + 1]]
    others = np.flatnonzero(signs & signs.dtype.type(1 << lane) == 0).astype(np.int32)
    members, dual = np.concatenate((own, others)), np.empty(n, np.float32)
    w[:n_shared], w[d] = W[lane::lanes], block.bias[lane]
    for k in range(n):
        i = np.int64(members[k])
        signed = alpha[i * lanes + lane]
        dual[k] = abs(signed)
        for p in range(middle[i], indptr[i + 1]):
            w[indices[p]] = values[p] * signed
    plain = Rows(indptr, indices, values, squares)
    halves = block.half_pos[lane], block.half_neg[lane]
    epochs, visits = descend(plain, members, dual, own.shape[0], halves, limits, w, labels.keys[j])
    W[lane::lanes], block.bias[lane] = w[:n_shared], w[d]
    for k in range(n):
        alpha[np.int64(members[k]) * lanes + lane] = dual[k] if k < own.shape[0] else -dual[k]
    return epochs, visits


@njit(nogil=True, cache=True)
def emit(rows, block, prune, first, counts, store):
    """Weights of at least ``prune`` in size to the end of a growing store; W becomes zero.

    Labels are counted from ``first``. ``counts`` (words,) grows by the weights of each word.
    Returns the new store.
    """
    least = max(prune, np.float32(1e-37))  # a zero is no weight
    store = _emit_shared(block, least, first, counts, store)
    return _emit_own(rows, block, least, first, counts, store)


@njit(nogil=True, cache=True, inline="always")
def _emit_shared(block, least, first, counts, store):
    """Weights of the words that rows share."""
    used, word, label, weight = store
    W, lanes, any_signs = block.W, width(block.signs), block.signs.dtype.type(0)
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
    return WeightStore(used, word, label, weight)


@njit(nogil=True, cache=True, inline="always")
def _emit_own(rows, block, least, first, counts, store):
    """Weights of the words that one row only has: its values times its dual variables."""
    indptr, middle, indices, values, _, _ = rows
    used, word, label, weight = store
    alpha, lanes, any_signs = block.alpha, width(block.signs), block.signs.dtype.type(0)
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
    return WeightStore(used, word, label, weight)


@njit(nogil=True, cache=True)
def _larger(word, label, weight):
    """Copies of a store with twice the room."""
    room = 2 * word.shape[0] + LANES
    return grown(word, room), grown(label, room), grown(weight, room)


@njit(nogil=True, cache=True)
def by_word(counts, store, order, numbers, first, words, entries, child, weight):
    """Put the weights of ``train`` in the order of their words.

    ``order`` lists all words as they shall lie, ``numbers`` (words,) are their names; those that
    have a weight go to ``words`` with their ``entries``. ``child`` receives the labels, counted
    from ``first``, and ``weight`` their weights.
    """
    _, word, label, found_weight = store
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
        child[place], weight[place] = first + label[e], found_weight[e]
