"""Many L2-regularised squared-hinge problems on the same rows: active sets and dual descent.

For every label: minimise 1/2 |(w, b)|^2 + sum_i C_i max(0, 1 - y_i (w.x_i + b))^2. At the optimum
few negatives have a margin above -1, so each label keeps a small set of rows (its positives first,
then negatives with alpha > 0) and the dual variables of those:

    (w, b) = sum_i alpha_i y_i (x_i, 1),   alpha_i >= 0.

Rounds alternate between one pass over all rows, shared by LANES labels, that finds rows violating
the margin outside the set, and coordinate descent on the set. A label is done when its last descent
converged and the loss outside its set, estimated from every fourth row, is a small share of its
objective.

Nothing here depends on which labels share a block or a thread: a label's result is a function of
the rows, its positives, its C and its key.
"""

import numpy as np
from numba import njit

from coattail.kernels.lanes import LANES, LARGEST
from coattail.kernels.solvers.active_rows import PROBE, enlarged, narrow, outside, raised, violators
from coattail.kernels.solvers.descent import descend, extent, loss_inside, weights_of
from coattail.kernels.sparse import grown

WARM_ROUNDS = 2  # rounds of a loose and short descent before the tolerance asked for
WARM_EPOCHS = 3
LOOSE = np.float32(3.0)
ROOM = np.array([200, 500, 1000], np.int64)  # rows a round may add, besides 2 per positive
CHECK = 4  # every so many rows are looked at to see whether a label is done
FEW = 16384  # of fewer rows than this all are


@njit(nogil=True, cache=True)
def _append(members, alpha, n_pos, size, store_rows, store_alpha):
    """Positives and the rows with alpha > 0 to the end of a growing store."""
    store_rows = grown(store_rows, size + members.shape[0])
    store_alpha = grown(store_alpha, size + members.shape[0])
    for e in range(members.shape[0]):
        if e < n_pos or alpha[e] > 0:
            store_rows[size] = members[e]
            store_alpha[size] = alpha[e]
            size += 1
    return size, store_rows, store_alpha


@njit(nogil=True, cache=True)
def _emit(column, prune, size, words, weights):
    """Weights of at least ``prune`` in size to the end of a growing store."""
    words = grown(words, size + column.shape[0])
    weights = grown(weights, size + column.shape[0])
    least = max(prune, np.float32(1e-37))  # a zero is no weight
    for f in range(column.shape[0]):
        # Written in any case, kept by moving on: no branch to guess.
        words[size] = f
        weights[size] = column[f]
        size += np.int64(abs(column[f]) >= least)
    return size, words, weights


@njit(nogil=True, cache=True)
def _start(rows, own, sample, marked, cost, limits, w, key):
    """A first set from positives and sampled negatives: (members, alpha, epochs, row visits).

    ``rows`` is (indptr, indices, values, squares), ``cost`` (1/(2 C+), 1/(2 C-)) with the sample
    weighed to stand for all rows, ``limits`` (eps, epochs). w receives the weights.
    """
    others, _, _ = outside(sample, np.zeros(sample.shape[0], np.float32), own, marked, 0.0)
    members = np.concatenate((own, others))
    alpha = np.zeros(members.shape[0], np.float32)
    w[:] = 0
    epochs, visits = descend(
        rows[0], rows[1], rows[2], rows[3], members, alpha, own.shape[0], cost[0], cost[1],
        limits[0], limits[1], w, key,
    )  # fmt: skip
    return members, alpha, epochs, visits


@njit(nogil=True, cache=True)
def _lay_out(rows, first, labels, c_pos, c_neg, sets, V, Q):
    """Weights of up to LANES labels as rows of V and, narrowed, as columns of Q.

    ``sets`` is (begin, end, members, alpha). Returns biases, scales of Q, floors of the margin (no
    row of an unused lane is above its) and objectives inside the sets, each (LANES,).
    """
    begin, end, members, alpha = sets
    d = Q.shape[0]
    scale, objective = np.ones(LANES, np.float32), np.zeros(LANES)
    floor = np.full(LANES, np.inf, np.float32)
    for lane in range(labels.shape[0]):
        j = labels[lane]
        n_pos = first[j + 1] - first[j]
        own = alpha[begin[j] : end[j]]
        weights_of(rows[0], rows[1], rows[2], members[begin[j] : end[j]], own, n_pos, V[lane])
        squares, _ = extent(V[lane])
        _, largest = extent(V[lane, :d])
        scale[lane] = LARGEST / max(largest, np.float32(1e-30))
        floor[lane] = -1.0
        inside = loss_inside(own, n_pos, 0.5 / c_pos[j], 0.5 / c_neg[j])
        objective[lane] = max(0.5 * squares + inside, 1e-30)
    V[labels.shape[0] :] = 0
    narrow(V, scale, Q)
    return V[:, d].copy(), scale, floor, objective


@njit(nogil=True, cache=True)
def _estimates(rows, first, labels, c_pos, c_neg, sets, marked, turn, V, Q):
    """Loss outside the sets relative to the objectives, (labels,), from a share of the rows."""
    stride = CHECK if rows[0].shape[0] > FEW else 1
    bias, scale, floor, objective = _lay_out(rows, first, labels, c_pos, c_neg, sets, V, Q)
    lane_first, found, margins = violators(
        rows[0], rows[1], rows[2], turn % stride, stride, Q, scale, bias, floor
    )
    share = np.zeros(labels.shape[0])
    for lane in range(labels.shape[0]):
        j = labels[lane]
        part = slice(lane_first[lane], lane_first[lane + 1])
        members = sets[2][sets[0][j] : sets[1][j]]
        _, _, loss = outside(found[part], margins[part], members, marked, c_neg[j])
        share[lane] = stride * loss / objective[lane]
    return share


@njit(nogil=True, cache=True)
def train(
    indptr, indices, values, squares, first, positives, keys, c_pos, c_neg, sample,
    eps, gap, max_epochs, max_rounds, prune, V, Q,
):  # fmt: skip
    """Train labels; returns (start, stop, words, weights, bias, stats).

    Parameters
    ----------
    indptr, indices, values : CSR rows; indices below len(Q)
    squares : float32 (n,), |x_i|^2 + 1
    first, positives : int64 (g + 1,), int32; rows of label j are positives[first[j]:first[j + 1]]
    keys : int64 (g,), seeds of the labels
    c_pos, c_neg : float32 (g,)
    sample : int32, sorted rows that serve as the first negatives; all rows: solved at once
    V, Q : float32 (LANES, words + 1) and int16 (words, LANES), scratch; words, here, are rounded up
        to a multiple of LANES

    Weights of label j are words[start[j]:stop[j]], weights[...]; bias is float32 (g,). stats is
    float64 (g, 5): rounds, row visits, rows in the set, relative loss outside it, and 1 where the
    rounds or epochs allowed did not suffice.
    """
    n, g, d = indptr.shape[0] - 1, keys.shape[0], Q.shape[0]
    csr = (indptr, indices, values, squares)
    start, stop = np.zeros(g, np.int64), np.zeros(g, np.int64)
    out_words, out_weights, out = np.empty(1024, np.int32), np.empty(1024, np.float32), 0
    bias, stats = np.zeros(g, np.float32), np.zeros((g, 5))
    marked = np.zeros(n, np.bool_)
    # The set of label j is members[begin[j]:end[j]], and so for alpha: a store made new each round.
    begin, end = np.zeros(g, np.int64), np.zeros(g, np.int64)
    members, alpha, size = np.empty(4096, np.int32), np.empty(4096, np.float32), 0
    complete = sample.shape[0] == n
    share = n / max(sample.shape[0], 1)
    limits = (eps, max_epochs) if complete else (LOOSE * eps, WARM_EPOCHS)
    for j in range(g):
        own = positives[first[j] : first[j + 1]]
        cost = (np.float32(0.5 / c_pos[j]), np.float32(0.5 / (share * c_neg[j])))
        rows, own_alpha, epochs, visits = _start(
            csr, own, sample, marked, cost, limits, V[0], keys[j]
        )
        stats[j, 1], stats[j, 2] = visits, rows.shape[0]
        stats[j, 4] = complete and epochs == 0
        begin[j] = size
        size, members, alpha = _append(rows, own_alpha, own.shape[0], size, members, alpha)
        end[j] = size
    todo = np.arange(g)
    converged = np.zeros(g, np.bool_)
    for turn in range(0 if complete else max_rounds):
        old = (begin.copy(), end.copy(), members, alpha)
        left = 0
        ripe = todo[converged[todo]]
        done = np.zeros(g, np.bool_)
        for block in range(0, ripe.shape[0], LANES):
            labels = ripe[block : block + LANES].copy()
            estimate = _estimates(csr, first, labels, c_pos, c_neg, old, marked, turn, V, Q)
            for lane in range(labels.shape[0]):
                j = labels[lane]
                stats[j, 0], stats[j, 2] = turn + 1, end[j] - begin[j]
                stats[j, 3] = estimate[lane]
                if estimate[lane] <= gap:
                    done[j] = True
                    bias[j], start[j] = V[lane, d], out
                    out, out_words, out_weights = _emit(
                        V[lane, :d], prune, out, out_words, out_weights
                    )
                    stop[j] = out
        todo = todo[~done[todo]]
        members, alpha = np.empty(size, np.int32), np.empty(size, np.float32)
        size = 0
        warm = turn < WARM_ROUNDS
        limits = (LOOSE * eps, WARM_EPOCHS + turn) if warm else (eps, max_epochs)
        for block in range(0, todo.shape[0], LANES):
            labels = todo[block : block + LANES].copy()
            lane_bias, scale, floor, objective = _lay_out(
                csr, first, labels, c_pos, c_neg, old, V, Q
            )
            room = np.zeros(LANES, np.int64)
            for lane in range(labels.shape[0]):
                n_pos = first[labels[lane] + 1] - first[labels[lane]]
                room[lane] = ROOM[min(turn, ROOM.shape[0] - 1)] + 2 * n_pos
            if warm:
                probe, _, margins = violators(
                    indptr, indices, values, turn, PROBE, Q, scale, lane_bias, floor
                )
                floor = raised(probe, margins, room, floor)
            lane_first, found, margins = violators(
                indptr, indices, values, 0, 1, Q, scale, lane_bias, floor
            )
            for lane in range(labels.shape[0]):
                j = labels[lane]
                n_pos = first[j + 1] - first[j]
                rows = old[2][old[0][j] : old[1][j]]
                part = slice(lane_first[lane], lane_first[lane + 1])
                new, new_margins, loss = outside(found[part], margins[part], rows, marked, c_neg[j])
                stats[j, 0], stats[j, 2] = turn + 1, rows.shape[0]
                stats[j, 3] = loss / objective[lane]
                if stats[j, 3] <= gap and converged[j]:
                    bias[j], start[j] = lane_bias[lane], out
                    out, out_words, out_weights = _emit(
                        V[lane, :d], prune, out, out_words, out_weights
                    )
                    stop[j] = out
                    continue
                rows, own_alpha = enlarged(
                    rows, old[3][old[0][j] : old[1][j]], new, new_margins, room[lane]
                )
                epochs, visits = descend(
                    indptr, indices, values, squares, rows, own_alpha, n_pos,
                    np.float32(0.5 / c_pos[j]), np.float32(0.5 / c_neg[j]),
                    limits[0], limits[1], V[lane], keys[j] + turn + 1,
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
        if not complete:
            stats[j, 4] = 1
        rows, own_alpha = members[begin[j] : end[j]], alpha[begin[j] : end[j]]
        weights_of(indptr, indices, values, rows, own_alpha, first[j + 1] - first[j], V[0])
        bias[j], start[j] = V[0, d], out
        out, out_words, out_weights = _emit(V[0, :d], prune, out, out_words, out_weights)
        stop[j] = out
    return start, stop, out_words[:out], out_weights[:out], bias, stats
