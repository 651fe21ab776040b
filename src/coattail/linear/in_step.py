"""Outputs of a tree's node trained in step on all its rows, their weights word by word."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from coattail.kernels import together
from coattail.kernels.sparse import LANES, constant
from coattail.linear.params import PltParams
from coattail.linear.scratch import lasting, scratch
from coattail.linear.solve import Group, Rows, aligned
from coattail.linear.weights import Turned

_own = threading.local()


def solve_in_step(
    rows: Rows, order: NDArray[np.int32], group: Group, params: PltParams, output: int, few: bool
) -> Turned:
    """Train one group of outputs in step, on all the rows; releases the GIL while it works.

    ``order`` lists the words by their old numbers; outputs are counted from ``output``, in 16 bits
    where they are ``few``.
    """
    problem = constant(group.first, group.rows, group.keys, group.c_pos, group.c_neg)
    limits = (params.seed, np.float32(params.eps), params.max_epochs, np.float32(params.prune))
    d = len(order)
    counts, size, owner, weights, bias, _ = together.train(
        *rows.parts, rows.squares, *problem, *limits, order, scratch("w", d + 1, np.float32),
        _zeros(d), scratch("alpha", rows.n * LANES, np.float32), *_store(),
    )  # fmt: skip
    _own.store = owner, weights
    words, entries = scratch("words", d, np.int32), scratch("entries", d, np.int32)
    child = lasting("child", size, np.uint16 if few else np.int32)
    weight = lasting("weight", size, np.float32)
    used = together.turn(
        counts, owner, weights, order, rows.words, output, words, entries, child, weight
    )
    kept = lasting("words", used, np.int32), lasting("entries", used, np.int32)
    kept[0][:], kept[1][:] = words[:used], entries[:used]
    return Turned(*kept, child, weight, bias)


def _zeros(n_words: int) -> NDArray[np.float32]:
    """Scratch (n_words, LANES) of this thread, zero; the kernel leaves it so."""
    W: NDArray[np.float32] | None = getattr(_own, "zeros", None)
    if W is None or len(W) < n_words:
        W = _own.zeros = aligned(n_words * LANES).reshape(n_words, LANES)
    return W[:n_words]


def _store() -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Where this thread gathers the weights of a group; it stays as large as it has become."""
    known: tuple[NDArray[np.uint8], NDArray[np.float32]] | None = getattr(_own, "store", None)
    return known or (np.empty(1 << 16, np.uint8), np.empty(1 << 16, np.float32))
