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

from typing import NamedTuple

import numpy as np
from numba import njit

from coattail.kernels.lanes import LANES, LARGEST
from coattail.kernels.solvers.active_rows import PROBE, enlarged, narrow, outside, raised, violators
from coattail.kernels.solvers.descent import descend, extent, loss_inside, weights_of
from coattail.kernels.solvers.problems import nothing_solved, with_weights
from coattail.kernels.sparse import grown

WARM_ROUNDS = 2  # rounds of a loose and short descent before the tolerance asked for
WARM_EPOCHS = 3
LOOSE = np.float32(3.0)
ROOM = np.array([200, 500, 1000], np.int64)  # rows a round may add, besides 2 per positive
CHECK = 4  # every so many rows are looked at to see whether a label is done
FEW = 16384  # of fewer rows than this all are


class ActiveSetLimits(NamedTuple):
    """How far to go."""

    eps: np.float32  # spread of projected gradients at which a descent has converged
    gap: float  # loss outside its set that a finished label may have, relative to its objective
    max_epochs: int  # of one descent
    max_rounds: int
    prune: np.float32  # weights smaller than this are dropped


class ActiveSetMemory(NamedTuple):
    """Scratch that holds anything; ``words`` here are rounded up to a multiple of LANES."""

    V: np.ndarray  # float32 (LANES, words + 1), weights and a bias per lane
    Q: np.ndarray  # int16 (words, LANES), the weights narrowed
    marked: np.ndarray  # bool (rows,), all False between uses


class Sets(NamedTuple):
    """Active rows: those of label j are ``members[begin[j]:end[j]]``, positives first."""

    begin: np.ndarray  # int64 (labels,)
    end: np.ndarray  # int64 (labels,)
    members: np.ndarray  # int32
    alpha: np.ndarray  # float32, the dual variables of the members
    size: int  # members that are used


class LaidOut(NamedTuple):
    """What one pass over the rows needs to know of up to LANES labels; (LANES,) each."""

    labels: np.ndarray  # int64, as many as there are
    bias: np.ndarray  # float32
    scale: np.ndarray  # float32, of the narrow weights
    floor: (
        np.ndarray
    )  # float32, smaller margins do not violate; no margin is above an unused lane's
    objective: np.ndarray  # float64, inside the sets


@njit(nogil=True, cache=True)
def train(rows, labels, sample, limits, V, Q):
    """Train ``labels`` on ``rows``; returns `problems.Answer`.

    ``sample`` are the sorted rows that serve as the first negatives; if it holds all rows, every
    label is solved by one descent. V and Q are those of `ActiveSetMemory`.
    """
    g, n = labels.keys.shape[0], rows.squares.shape[0]
    memory, solved = ActiveSetMemory(V, Q, np.zeros(n, np.bool_)), nothing_solved(g)
    complete = sample.shape[0] == n
    sets = _first_sets(rows, labels, sample, limits, memory, solved.stats)
    todo, converged = np.arange(g), np.zeros(g, np.bool_)
    for turn in range(0 if complete else limits.max_rounds):
        solved, todo = _without_finished(
            rows, labels, limits, sets, turn, todo, converged, memory, solved
        )
        solved, todo, sets = _round(
            rows, labels, limits, sets, turn, todo, converged, memory, solved
        )
        if todo.shape[0] == 0:
            break
    d = Q.shape[0]
    for j in todo:  # solved at once, or out of rounds: as good as it got
        if not complete:
            solved.stats[j, 4] = 1
        members, alpha = _set_of(sets, j)
        weights_of(rows, members, alpha, _positives(labels, j), V[0])
        solved = with_weights(solved, j, V[0, :d], V[0, d], limits.prune)
    return solved


@njit(nogil=True, cache=True, inline="always")
def _first_sets(rows, labels, sample, limits, memory, stats):
    """Sets of all labels after a descent on their positives and the sampled negatives."""
    n, g = rows.squares.shape[0], labels.keys.shape[0]
    complete = sample.shape[0] == n
    share = n / max(sample.shape[0], 1)  # rows that one of the sample stands for
    eps, epochs = LOOSE * limits.eps, WARM_EPOCHS
    if complete:
        eps, epochs = limits.eps, limits.max_epochs
    sets, w = _no_sets(g, 4096), memory.V[0]
    for j in range(g):
        own = labels.positives[labels.first[j] : labels.first[j + 1]]
        halves = np.float32(0.5 / labels.c_pos[j]), np.float32(0.5 / (share * labels.c_neg[j]))
        zeros = np.zeros(sample.shape[0], np.float32)
        others, _, _ = outside(sample, zeros, own, memory.marked, 0.0)
        members = np.concatenate((own, others))
        alpha = np.zeros(members.shape[0], np.float32)
        w[:] = 0
        done, visits = descend(
            rows, members, alpha, own.shape[0], halves, (eps, epochs), w, labels.keys[j]
        )
        stats[j, 1], stats[j, 2] = visits, members.shape[0]
        stats[j, 4] = complete and done == 0
        sets = _with_set(sets, j, members, alpha, own.shape[0])
    return sets


@njit(nogil=True, cache=True, inline="always")
def _without_finished(rows, labels, limits, sets, turn, todo, converged, memory, solved):
    """Write the weights of converged labels that a share of the rows shows to be finished.

    Returns what is solved, and the labels still to do.
    """
    d, stats = memory.Q.shape[0], solved.stats
    ripe, finished = todo[converged[todo]], np.zeros(converged.shape[0], np.bool_)
    for start in range(0, ripe.shape[0], LANES):
        some = ripe[start : start + LANES].copy()
        loss = _estimated_loss(rows, labels, sets, turn, some, memory)
        for lane in range(some.shape[0]):
            j = some[lane]
            stats[j, 0], stats[j, 2] = turn + 1, sets.end[j] - sets.begin[j]
            stats[j, 3] = loss[lane]
            if loss[lane] <= limits.gap:
                finished[j] = True
                w = memory.V[lane]
                solved = with_weights(solved, j, w[:d], w[d], limits.prune)
    return solved, todo[~finished[todo]]


@njit(nogil=True, cache=True, inline="always")
def _round(rows, labels, limits, sets, turn, todo, converged, memory, solved):
    """One pass over all rows, and for each label that is not finished a descent on a larger set.

    ``converged`` is brought up to date. Returns what is solved, the labels still to do, and the new
    sets.
    """
    new, left = _no_sets(converged.shape[0], sets.size), 0
    for start in range(0, todo.shape[0], LANES):
        some = todo[start : start + LANES].copy()
        block = _lay_out(rows, labels, sets, some, memory)
        room = _room(labels, some, turn)
        first, found, margins = _violators(rows, block, room, turn, memory.Q)
        for lane in range(some.shape[0]):
            j, part = some[lane], slice(first[lane], first[lane + 1])
            members, alpha = _set_of(sets, j)
            outer, outer_margins, loss = outside(
                found[part], margins[part], members, memory.marked, labels.c_neg[j]
            )
            stats = solved.stats[j]
            stats[0], stats[2], stats[3] = turn + 1, members.shape[0], loss / block.objective[lane]
            w = memory.V[lane]
            if stats[3] <= limits.gap and converged[j]:
                d = w.shape[0] - 1
                solved = with_weights(solved, j, w[:d], block.bias[lane], limits.prune)
                continue
            members, alpha = enlarged(members, alpha, outer, outer_margins, room[lane])
            converged[j], visits = _improve(rows, labels, limits, j, turn, members, alpha, w)
            stats[1] += visits
            new = _with_set(new, j, members, alpha, _positives(labels, j))
            todo[left] = j
            left += 1
    return solved, todo[:left], new


@njit(nogil=True, cache=True, inline="always")
def _improve(rows, labels, limits, j, turn, members, alpha, w):
    """Descent on the set of label j; whether it converged in earnest, and row visits."""
    warm = turn < WARM_ROUNDS
    eps, epochs = limits.eps, limits.max_epochs
    if warm:
        eps, epochs = LOOSE * eps, WARM_EPOCHS + turn
    halves = np.float32(0.5 / labels.c_pos[j]), np.float32(0.5 / labels.c_neg[j])
    key = labels.keys[j] + turn + 1
    done, visits = descend(
        rows, members, alpha, _positives(labels, j), halves, (eps, epochs), w, key
    )
    return done > 0 and not warm, visits


@njit(nogil=True, cache=True)
def _lay_out(rows, labels, sets, some, memory):
    """The `LaidOut` of up to LANES labels; their weights fill rows of V and columns of Q."""
    V, d = memory.V, memory.Q.shape[0]
    scale, objective = np.ones(LANES, np.float32), np.zeros(LANES)
    floor = np.full(LANES, np.inf, np.float32)
    for lane in range(some.shape[0]):
        j = some[lane]
        n_pos = _positives(labels, j)
        members, alpha = _set_of(sets, j)
        weights_of(rows, members, alpha, n_pos, V[lane])
        squares, _ = extent(V[lane])
        _, largest = extent(V[lane, :d])
        scale[lane] = LARGEST / max(largest, np.float32(1e-30))
        floor[lane] = -1.0
        inside = loss_inside(alpha, n_pos, 0.5 / labels.c_pos[j], 0.5 / labels.c_neg[j])
        objective[lane] = max(0.5 * squares + inside, 1e-30)
    V[some.shape[0] :] = 0
    narrow(V, scale, memory.Q)
    return LaidOut(some, V[:, d].copy(), scale, floor, objective)


@njit(nogil=True, cache=True, inline="always")
def _violators(rows, block, room, turn, Q):
    """Rows that violate the margins of a block, as `active_rows.violators` returns them.

    In the first rounds they are too many to list, so only about twice the ``room`` of each label.
    """
    floor = block.floor
    if turn < WARM_ROUNDS:
        probe, _, margins = violators(rows, turn, PROBE, Q, block.scale, block.bias, floor)
        floor = raised(probe, margins, room, floor)
    return violators(rows, 0, 1, Q, block.scale, block.bias, floor)


@njit(nogil=True, cache=True)
def _estimated_loss(rows, labels, sets, turn, some, memory):
    """Loss outside the sets relative to the objectives, from a share of the rows, (some,)."""
    stride = CHECK if rows.indptr.shape[0] > FEW else 1
    block = _lay_out(rows, labels, sets, some, memory)
    first, found, margins = violators(
        rows, turn % stride, stride, memory.Q, block.scale, block.bias, block.floor
    )
    share = np.zeros(some.shape[0])
    for lane in range(some.shape[0]):
        part, j = slice(first[lane], first[lane + 1]), some[lane]
        members, _ = _set_of(sets, j)
        _, _, loss = outside(found[part], margins[part], members, memory.marked, labels.c_neg[j])
        share[lane] = stride * loss / block.objective[lane]
    return share


@njit(nogil=True, cache=True, inline="always")
def _room(labels, some, turn):
    """Rows that this round may add to the set of each label, (LANES,)."""
    room = np.zeros(LANES, np.int64)
    for lane in range(some.shape[0]):
        room[lane] = ROOM[min(turn, ROOM.shape[0] - 1)] + 2 * _positives(labels, some[lane])
    return room


@njit(nogil=True, cache=True, inline="always")
def _positives(labels, j):
    """How many positive rows label j has."""
    return labels.first[j + 1] - labels.first[j]


@njit(nogil=True, cache=True, inline="always")
def _no_sets(g, room):
    begin, end = np.zeros(g, np.int64), np.zeros(g, np.int64)
    return Sets(begin, end, np.empty(room, np.int32), np.empty(room, np.float32), 0)


@njit(nogil=True, cache=True, inline="always")
def _set_of(sets, j):
    """Members of the set of label j, and their dual variables."""
    own = slice(sets.begin[j], sets.end[j])
    return sets.members[own], sets.alpha[own]


@njit(nogil=True, cache=True)
def _with_set(sets, j, members, alpha, n_pos):
    """The sets and that of label j: its positives, and the rows with alpha > 0."""
    size = sets.size
    all_members = grown(sets.members, size + members.shape[0])
    all_alpha = grown(sets.alpha, size + members.shape[0])
    sets.begin[j] = size
    for e in range(members.shape[0]):
        if e < n_pos or alpha[e] > 0:
            all_members[size], all_alpha[size] = members[e], alpha[e]
            size += 1
    sets.end[j] = size
    return Sets(sets.begin, sets.end, all_members, all_alpha, size)
