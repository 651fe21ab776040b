"""What a solver is given: rows, labels on them, and weights handed back.

Named tuples of arrays, which numba takes apart when it compiles: a field costs no more than an
argument of its own.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from coattail.kernels.sparse import grown


class Rows(NamedTuple):
    """CSR rows, each with |x|^2 + 1."""

    indptr: np.ndarray  # int64 (n + 1,)
    indices: np.ndarray  # int32
    values: np.ndarray  # float32
    squares: np.ndarray  # float32 (n,)


class Labels(NamedTuple):
    """One binary problem per label: its positive rows are ``positives[first[j]:first[j + 1]]``."""

    keys: np.ndarray  # int64 (g,), seeds of the labels
    first: np.ndarray  # int64 (g + 1,)
    positives: np.ndarray  # int32
    c_pos: np.ndarray  # float32 (g,), C of the positive rows
    c_neg: np.ndarray  # float32 (g,)
    target: np.ndarray  # float32 (g,), what a positive is to the logistic loss: 1, or more


class Answer(NamedTuple):
    """Weights of label j: ``words[start[j]:stop[j]]``, ``weights[start[j]:stop[j]]``, ``bias[j]``.

    Only the first ``size`` of words and weights are used. ``stats`` tells, label by label, rounds,
    row visits, rows in the active set, relative loss outside it, and 1 where the rounds or epochs
    allowed did not suffice.
    """

    start: np.ndarray  # int64 (g,)
    stop: np.ndarray  # int64 (g,)
    words: np.ndarray  # int32
    weights: np.ndarray  # float32
    size: int
    bias: np.ndarray  # float32 (g,)
    stats: np.ndarray  # float64 (g, 5)


@njit(nogil=True, cache=True)
def nothing_solved(g):
    """No weights yet, for g labels."""
    start, stop = np.zeros(g, np.int64), np.zeros(g, np.int64)
    words, weights = np.empty(1024, np.int32), np.empty(1024, np.float32)
    return Answer(start, stop, words, weights, 0, np.zeros(g, np.float32), np.zeros((g, 5)))


@njit(nogil=True, cache=True)
def with_weights(solved, j, column, bias, prune):
    """The same and the weights of label j, those of at least ``prune`` in size; returns it all."""
    size = solved.size
    words = grown(solved.words, size + column.shape[0])
    weights = grown(solved.weights, size + column.shape[0])
    least = max(prune, np.float32(1e-37))  # a zero is no weight
    solved.start[j], solved.bias[j] = size, bias
    for f in range(column.shape[0]):
        # Written in any case, kept by moving on: no branch to guess.
        words[size] = f
        weights[size] = column[f]
        size += np.int64(abs(column[f]) >= least)
    solved.stop[j] = size
    return Answer(solved.start, solved.stop, words, weights, size, solved.bias, solved.stats)
