"""Dual coordinate descent for one squared-hinge problem on a set of rows."""

import numpy as np
from numba import njit

from coattail.kernels.sparse import axpy, below, dot, mix, prefetch, step

LINE = 16  # four-byte values in a cache line
# Visits ahead at which a row's place, then its bounds, then its words are asked for: each look-up
# needs the one before it, and in a large problem each is a wait for main memory.
PLACE, BOUNDS, WORDS = 6, 4, 2
NEGLIGIBLE = np.float32(0.1)  # share of eps


@njit(nogil=True, cache=True)
def ask_for_words(indices, values, start, stop):
    """Bring the words of a row near; no effect on any value."""
    for p in range(start, stop, LINE):
        prefetch(indices, p)
        prefetch(values, p)


@njit(nogil=True, cache=True)
def _ask_ahead(indptr, indices, values, squares, members, alpha, order, k, active):
    """Bring near what the visits after the k-th will read; no effect on any value."""
    if k + PLACE < active:
        prefetch(members, order[k + PLACE])
        prefetch(alpha, order[k + PLACE])
    if k + BOUNDS < active:
        i = members[order[k + BOUNDS]]
        prefetch(indptr, i)
        prefetch(squares, i)
    if k + WORDS < active:
        i = members[order[k + WORDS]]
        ask_for_words(indices, values, indptr[i], indptr[i + 1])


@njit(nogil=True, cache=True, inline="always")
def shuffle(order, active, state):
    """Shuffle the first ``active`` of ``order``; returns the next state of the random numbers."""
    for k in range(active - 1):
        state = step(state)
        j = k + below(state, active - k)
        order[k], order[j] = order[j], order[k]
    return state


@njit(nogil=True, cache=True)
def descend(rows, members, alpha, n_pos, halves, limits, w, key):
    """Dual coordinate descent on a set of rows; alpha and w = (weights, bias) change in place.

    ``members[:n_pos]`` are positive, the others negative; ``halves`` are their 1/(2C), ``limits``
    (eps, epochs). Shrinking as in liblinear. Returns epochs done, 0 where they did not suffice, and
    the number of row visits.
    """
    m = members.shape[0]
    order = np.arange(m).astype(np.int32)
    active = m
    limit = np.float32(np.inf)  # gradients above it leave the active part
    eps, max_epochs = limits
    visits, state = 0, mix(key, m)
    for epoch in range(max_epochs):
        state = shuffle(order, active, state)
        active, highest, lowest, seen = _epoch(
            rows, members, alpha, n_pos, halves, NEGLIGIBLE * eps, limit, order, active, w
        )
        visits += seen
        if highest - lowest <= eps:
            if active == m:
                return epoch + 1, visits
            active = m
            limit = np.float32(np.inf)
        else:
            limit = highest if highest > 0 else np.float32(np.inf)
    return 0, visits


@njit(nogil=True, cache=True, inline="always")
def _epoch(rows, members, alpha, n_pos, halves, small, limit, order, active, w):
    """Visit the active rows once; returns how many stay so, the extreme gradients, and visits.

    A coordinate whose gradient is at most ``small`` is near its optimum and left alone.
    """
    indptr, indices, values, squares = rows  # once: each look into a tuple counts a reference
    highest, lowest = np.float32(-np.inf), np.float32(np.inf)
    bias = w[w.shape[0] - 1]
    visits, k = 0, 0
    while k < active:
        _ask_ahead(indptr, indices, values, squares, members, alpha, order, k, active)
        e = order[k]
        i = members[e]
        sign, half = np.float32(1.0), halves[0]
        if e >= n_pos:
            sign, half = np.float32(-1.0), halves[1]
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
    w[w.shape[0] - 1] = bias
    return active, highest, lowest, visits


@njit(nogil=True, cache=True)
def weights_of(rows, members, alpha, n_pos, w):
    """w = (weights, bias) from the dual variables."""
    indptr, indices, values, _ = rows
    w[:] = 0
    bias = np.float32(0.0)
    for e in range(members.shape[0]):
        if alpha[e] != 0:
            i = members[e]
            signed = alpha[e] if e < n_pos else -alpha[e]
            axpy(indices, values, indptr[i], indptr[i + 1], signed, w)
            bias += signed
    w[w.shape[0] - 1] = bias


@njit(nogil=True, cache=True, fastmath=True)
def extent(w):
    """Sum of squares and largest absolute value of w; both loops vectorise."""
    squares, largest = 0.0, np.float32(0.0)
    for f in range(w.shape[0]):
        squares += w[f] * w[f]
    for f in range(w.shape[0]):
        largest = max(largest, abs(w[f]))
    return squares, largest


@njit(nogil=True, cache=True)
def loss_inside(alpha, n_pos, half_pos, half_neg):
    """Loss of the rows in the set, from alpha = 2 C (slack)."""
    total = 0.0
    for e in range(alpha.shape[0]):
        total += alpha[e] * alpha[e] * (half_pos if e < n_pos else half_neg)
    return 0.5 * total
