"""Many L2-regularised squared-hinge problems on the same rows: active sets and dual descent.

For every label: minimise 1/2 |(w, b)|^2 + sum_i C_i max(0, 1 - y_i (w.x_i + b))^2. At the optimum
few negatives have a margin above -1, so each label keeps a small set of rows (its positives first,
then negatives with alpha > 0) and the dual variables of those:

    (w, b) = sum_i alpha_i y_i (x_i, 1),   alpha_i >= 0.

Rounds alternate between one pass over all rows, shared by LANES labels, that finds rows violating
the margin outside the set, and coordinate descent on the set. A label is done when the loss outside
its set is a small share of its objective and its last descent converged.

Nothing here depends on which labels share a block or a thread: a label's result is a function of
the rows, its positives, its C and its key.
"""

import numpy as np
from numba import njit

from coattail.kernels.sparse import (
    LANES,
    above,
    axpy,
    below,
    dot,
    lanes,
    lowest_bit,
    mix,
    prefetch,
    step,
)

LINE = 16  # four-byte values in a cache line
NEGLIGIBLE = np.float32(0.1)  # share of eps
WARM_ROUNDS = 2  # rounds of a loose and short descent before the tolerance asked for
WARM_EPOCHS = 3
LOOSE = np.float32(3.0)
ROOM = np.array([200, 500, 1000], np.int64)  # rows a round may add, besides 2 per positive


@njit(nogil=True, cache=True)
def descend(
    indptr,
    indices,
    values,
    squares,
    rows,
    alpha,
    n_pos,
    half_pos,
    half_neg,
    eps,
    max_epochs,
    w,
    key,
):
    """Dual coordinate descent on a set of rows; alpha and w = (weights, bias) change in place.

    ``rows[:n_pos]`` are positive, the others negative; ``half_pos`` and ``half_neg`` are 1/(2C).
    ``squares`` is |x_i|^2 + 1. Shrinking as in liblinear. Returns epochs done, 0 where they did
    not suffice, and the number of row visits.
    """
    m = rows.shape[0]
    order = np.arange(m).astype(np.int32)
    active = m
    limit = np.float32(np.inf)  # gradients above it leave the active part
    bias = w[w.shape[0] - 1]
    state = mix(key, m)
    visits = 0
    small = NEGLIGIBLE * eps  # a coordinate this near its optimum is left alone
    for epoch in range(max_epochs):
        highest, lowest = np.float32(-np.inf), np.float32(np.inf)
        for k in range(active - 1):
            state = step(state)
            j = k + below(state, active - k)
            order[k], order[j] = order[j], order[k]
        k = 0
        while k < active:
            if k + 1 < active:
                following = rows[order[k + 1]]
                for p in range(indptr[following], indptr[following + 1], LINE):
                    prefetch(indices, p)
                    prefetch(values, p)
            e = order[k]
            i = rows[e]
            sign, half = np.float32(1.0), half_pos
            if e >= n_pos:
                sign, half = np.float32(-1.0), half_neg
            margin = dot(indices, values, indptr[i], indptr[i + 1], w) + bias
            old = alpha[e]
            gradient = sign * margin - np.float32(1.0) + old * half
            visits += 1
            projected = gradient
            if old == 0:
                if gradient > limit:
                    active -= 1
                    order[k], order[active] = order[active], order[k]
                    continue
                projected = min(gradient, np.float32(0.0))
            highest = max(highest, projected)
            lowest = min(lowest, projected)
            if abs(projected) > small:
                new = max(old - gradient / (squares[i] + half), np.float32(0.0))
                if new != old:
                    alpha[e] = new
                    change = (new - old) * sign
                    axpy(indices, values, indptr[i], indptr[i + 1], change, w)
                    bias += change
            k += 1
        if highest - lowest <= eps:
            if active == m:
                w[w.shape[0] - 1] = bias
                return epoch + 1, visits
            active = m
            limit = np.float32(np.inf)
        else:
            limit = highest if highest > 0 else np.float32(np.inf)
    w[w.shape[0] - 1] = bias
    return 0, visits


@njit(nogil=True, cache=True)
def weights_of(indptr, indices, values, rows, alpha, n_pos, w):
    """w = (weights, bias) from the dual variables."""
    w[:] = 0
    bias = np.float32(0.0)
    for e in range(rows.shape[0]):
        if alpha[e] != 0:
            i = rows[e]
            signed = alpha[e] if e < n_pos else -alpha[e]
            axpy(indices, values, indptr[i], indptr[i + 1], signed, w)
            bias += signed
    w[w.shape[0] - 1] = bias


@njit(nogil=True, cache=True)
def _grown(array, needed):
    """The array, or a copy with room for at least ``needed`` values."""
    if needed <= array.shape[0]:
        return array
    larger = np.empty(max(needed, 2 * array.shape[0]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


@njit(nogil=True, cache=True)
def _violators(indptr, indices, values, W, bias, used):
    """Rows with margin above -1, lane by lane: (first (LANES + 1,), rows, margins)."""
    n = indptr.shape[0] - 1
    thresholds = np.full(LANES, np.inf, np.float32)
    thresholds[:used] = -1.0
    out = np.empty(LANES, np.float32)
    lane = np.empty(4096, np.uint8)
    row = np.empty(4096, np.int32)
    margin = np.empty(4096, np.float32)
    counts = np.zeros(LANES + 1, np.int64)
    found = 0
    for i in range(n):
        lanes(indices, values, indptr[i], indptr[i + 1], W, bias, out)
        mask = above(out, thresholds)
        if mask == 0:
            continue
        if found + LANES > row.shape[0]:
            lane = _grown(lane, found + LANES)
            row = _grown(row, found + LANES)
            margin = _grown(margin, found + LANES)
        while mask != 0:
            j = lowest_bit(mask)
            mask &= mask - np.uint64(1)
            lane[found] = j
            row[found] = i
            margin[found] = out[j]
            counts[j + 1] += 1
            found += 1
    first = np.cumsum(counts)
    at = first.copy()
    rows = np.empty(found, np.int32)
    margins = np.empty(found, np.float32)
    for k in range(found):
        j = lane[k]
        rows[at[j]] = row[k]
        margins[at[j]] = margin[k]
        at[j] += 1
    return first, rows, margins


@njit(nogil=True, cache=True)
def _outside(rows, margins, members, marked, c_neg):
    """Violators that are not members: their (rows, margins) and loss. ``marked`` is scratch."""
    for i in members:
        marked[i] = True
    kept = np.empty(rows.shape[0], np.int32)
    kept_margins = np.empty(rows.shape[0], np.float32)
    count = 0
    loss = 0.0
    for k in range(rows.shape[0]):
        if not marked[rows[k]]:
            kept[count] = rows[k]
            kept_margins[count] = margins[k]
            count += 1
            loss += c_neg * (1.0 + margins[k]) ** 2
    for i in members:
        marked[i] = False
    return kept[:count], kept_margins[:count], loss


@njit(nogil=True, cache=True)
def _enlarged(members, alpha, rows, margins, room):
    """The set plus the violators with the largest margins, about ``room`` of them at most."""
    cut = np.float32(-np.inf)
    if rows.shape[0] > room:
        cut = np.partition(margins, rows.shape[0] - room)[rows.shape[0] - room]
    m = members.shape[0]
    new_members = np.empty(m + rows.shape[0], np.int32)
    new_alpha = np.zeros(m + rows.shape[0], np.float32)
    new_members[:m] = members
    new_alpha[:m] = alpha
    for k in range(rows.shape[0]):
        if margins[k] >= cut:
            new_members[m] = rows[k]
            m += 1
    return new_members[:m], new_alpha[:m]


@njit(nogil=True, cache=True)
def _append(members, alpha, n_pos, size, store_rows, store_alpha):
    """Positives and the rows with alpha > 0 to the end of a growing store."""
    store_rows = _grown(store_rows, size + members.shape[0])
    store_alpha = _grown(store_alpha, size + members.shape[0])
    for e in range(members.shape[0]):
        if e < n_pos or alpha[e] > 0:
            store_rows[size] = members[e]
            store_alpha[size] = alpha[e]
            size += 1
    return size, store_rows, store_alpha


@njit(nogil=True, cache=True)
def _emit(column, prune, size, words, weights):
    """Weights of at least ``prune`` in size to the end of a growing store."""
    for f in range(column.shape[0]):
        if column[f] != 0 and abs(column[f]) >= prune:
            if size == words.shape[0]:
                words = _grown(words, size + 1)
                weights = _grown(weights, size + 1)
            words[size] = f
            weights[size] = column[f]
            size += 1
    return size, words, weights


@njit(nogil=True, cache=True)
def _objective(w, alpha, n_pos, half_pos, half_neg):
    """1/2 |w|^2 plus the loss inside the set, from alpha = 2 C (slack)."""
    total = 0.0
    for f in range(w.shape[0]):
        total += w[f] * w[f]
    for e in range(alpha.shape[0]):
        total += alpha[e] * alpha[e] * (half_pos if e < n_pos else half_neg)
    return 0.5 * total


@njit(nogil=True, cache=True)
def _start(rows, own, sample, marked, cost, limits, w, key):
    """A first set from the positives and sampled negatives: (members, alpha, row visits).

    ``rows`` is (indptr, indices, values, squares), ``cost`` (1/(2 C+), 1/(2 C-)) with the sample
    weighed to stand for all rows, ``limits`` (eps, epochs). w receives the weights.
    """
    others, _, _ = _outside(sample, np.zeros(sample.shape[0], np.float32), own, marked, 0.0)
    members = np.concatenate((own, others))
    alpha = np.zeros(members.shape[0], np.float32)
    w[:] = 0
    _, visits = descend(
        rows[0], rows[1], rows[2], rows[3], members, alpha, own.shape[0], cost[0], cost[1],
        limits[0], limits[1], w, key,
    )  # fmt: skip
    return members, alpha, visits


@njit(nogil=True, cache=True)
def _lay_out(rows, first, labels, c_pos, c_neg, begin, end, members, alpha, w, W):
    """Weights of up to LANES labels as columns of W: (biases, objectives inside the sets)."""
    d = W.shape[0]
    bias, objective = np.zeros(LANES, np.float32), np.zeros(LANES)
    W[:] = 0
    for lane in range(labels.shape[0]):
        j = labels[lane]
        n_pos = first[j + 1] - first[j]
        own = alpha[begin[j] : end[j]]
        weights_of(rows[0], rows[1], rows[2], members[begin[j] : end[j]], own, n_pos, w)
        for f in range(d):
            if w[f] != 0:
                W[f, lane] = w[f]
        bias[lane] = w[d]
        objective[lane] = _objective(w, own, n_pos, 0.5 / c_pos[j], 0.5 / c_neg[j])
    return bias, objective


@njit(nogil=True, cache=True)
def train(
    indptr, indices, values, squares, first, positives, keys, c_pos, c_neg, sample,
    eps, gap, max_epochs, max_rounds, prune, W,
):  # fmt: skip
    """Train labels; returns (start, stop, words, weights, bias, stats).

    Parameters
    ----------
    indptr, indices, values : CSR rows; indices below len(W)
    squares : float32 (n,), |x_i|^2 + 1
    first, positives : int64 (g + 1,), int32; rows of label j are positives[first[j]:first[j + 1]]
    keys : int64 (g,), seeds of the labels
    c_pos, c_neg : float32 (g,)
    sample : int32, sorted rows that serve as the first negatives; all rows: solved at once
    W : float32 (words, LANES), scratch

    Weights of label j are words[start[j]:stop[j]], weights[...]; bias is float32 (g,). stats is
    float64 (g, 4): rounds, row visits, rows in the set, relative loss outside it.
    """
    n, g, d = indptr.shape[0] - 1, keys.shape[0], W.shape[0]
    csr = (indptr, indices, values, squares)
    start, stop = np.zeros(g, np.int64), np.zeros(g, np.int64)
    out_words, out_weights, out = np.empty(1024, np.int32), np.empty(1024, np.float32), 0
    bias, stats = np.zeros(g, np.float32), np.zeros((g, 4))
    marked, w = np.zeros(n, np.bool_), np.zeros(d + 1, np.float32)
    # The set of label j is members[begin[j]:end[j]], and so for alpha: a store made new each round.
    begin, end = np.zeros(g, np.int64), np.zeros(g, np.int64)
    members, alpha, size = np.empty(4096, np.int32), np.empty(4096, np.float32), 0
    complete = sample.shape[0] == n
    share = n / max(sample.shape[0], 1)
    limits = (eps, max_epochs) if complete else (LOOSE * eps, WARM_EPOCHS)
    for j in range(g):
        own = positives[first[j] : first[j + 1]]
        cost = (np.float32(0.5 / c_pos[j]), np.float32(0.5 / (share * c_neg[j])))
        rows, own_alpha, visits = _start(csr, own, sample, marked, cost, limits, w, keys[j])
        stats[j, 1], stats[j, 2] = visits, rows.shape[0]
        begin[j] = size
        size, members, alpha = _append(rows, own_alpha, own.shape[0], size, members, alpha)
        end[j] = size
    todo = np.arange(g)
    converged = np.zeros(g, np.bool_)
    for turn in range(0 if complete else max_rounds):
        warm = turn < WARM_ROUNDS
        limits = (LOOSE * eps, WARM_EPOCHS + turn) if warm else (eps, max_epochs)
        old_members, old_alpha = members, alpha
        members, alpha = np.empty(size, np.int32), np.empty(size, np.float32)
        size, left = 0, 0
        for block in range(0, todo.shape[0], LANES):
            labels = todo[block : block + LANES].copy()
            lane_bias, objective = _lay_out(
                csr, first, labels, c_pos, c_neg, begin, end, old_members, old_alpha, w, W
            )
            lane_first, found, margins = _violators(
                indptr, indices, values, W, lane_bias, labels.shape[0]
            )
            for lane in range(labels.shape[0]):
                j = labels[lane]
                n_pos = first[j + 1] - first[j]
                rows = old_members[begin[j] : end[j]]
                part = slice(lane_first[lane], lane_first[lane + 1])
                new, new_margins, loss = _outside(
                    found[part], margins[part], rows, marked, c_neg[j]
                )
                stats[j, 0], stats[j, 2] = turn + 1, rows.shape[0]
                stats[j, 3] = loss / max(objective[lane], 1e-30)
                if stats[j, 3] <= gap and converged[j]:
                    bias[j], start[j] = lane_bias[lane], out
                    out, out_words, out_weights = _emit(
                        W[:, lane], prune, out, out_words, out_weights
                    )
                    stop[j] = out
                    continue
                room = ROOM[min(turn, ROOM.shape[0] - 1)] + 2 * n_pos
                rows, own_alpha = _enlarged(
                    rows, old_alpha[begin[j] : end[j]], new, new_margins, room
                )
                w[:d] = W[:, lane]  # the new rows have alpha 0: the weights are still these
                w[d] = lane_bias[lane]
                epochs, visits = descend(
                    indptr, indices, values, squares, rows, own_alpha, n_pos,
                    np.float32(0.5 / c_pos[j]), np.float32(0.5 / c_neg[j]),
                    limits[0], limits[1], w, keys[j] + turn + 1,
                )  # fmt: skip
                converged[j] = epochs > 0 and not warm
                stats[j, 1] += visits
                begin[j] = size
                size, members, alpha = _append(rows, own_alpha, n_pos, size, members, alpha)
                end[j] = size
                todo[left] = j
                left += 1
        todo = todo[:left]
        if left == 0:
            break
    for j in todo:  # solved at once, or out of rounds: as good as it got
        rows, own_alpha = members[begin[j] : end[j]], alpha[begin[j] : end[j]]
        weights_of(indptr, indices, values, rows, own_alpha, first[j + 1] - first[j], w)
        bias[j], start[j] = w[d], out
        out, out_words, out_weights = _emit(w[:d], prune, out, out_words, out_weights)
        stop[j] = out
    return start, stop, out_words[:out], out_weights[:out], bias, stats
