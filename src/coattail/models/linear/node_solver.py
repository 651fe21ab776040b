"""Trains the outputs of a tree's node in lockstep on all its rows; weights are sorted by word."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from coattail.arrays import Parts
from coattail.kernels.compact_rows import set_apart
from coattail.kernels.lanes import LANES
from coattail.kernels.runtime.scratch import kept, lasting, remember, scratch, whole
from coattail.kernels.solvers import lockstep
from coattail.kernels.solvers.problems import Labels
from coattail.kernels.sparse import constant
from coattail.models.linear.linear_params import PltParams
from coattail.models.linear.node_weights import NodeWeights

STORE = {"word": np.int32, "label": np.uint16, "weight": np.float32}  # of weights found


@dataclass(frozen=True)
class NodeRows:
    """Rows of a node; words used by one row come after words that rows share.

    Attributes
    ----------
    csr : read-only
    words : int32 (d,), the old number of every word, shared ones first
    order : int32 (d,), the words by their old numbers
    n_shared : int
    """

    csr: lockstep.SplitRows
    words: NDArray[np.int32]
    order: NDArray[np.int32]
    n_shared: int


def node_rows(
    csr: Parts, squares: NDArray[np.float32], texts: NDArray[np.int32], n_words: int
) -> NodeRows:
    """Some rows, in scratch of this thread: they are valid until it asks for others."""
    n, nnz = len(texts), int((csr.indptr[texts + 1] - csr.indptr[texts]).sum())
    indptr, middle = np.empty(n + 1, np.int64), np.empty(n, np.int64)
    indices, values = scratch("indices", nnz, np.int32), scratch("values", nnz, np.float32)
    own, room = np.empty(n, np.float32), min(nnz, n_words)
    words, order = scratch("words", room, np.int32), scratch("order", room, np.int32)
    with kept("table", 4 * (n_words // 64 + 1), np.uint64) as flat:
        table = flat.reshape(-1, 4)
        d, n_shared = set_apart(
            *csr, *constant(texts), table, indptr, middle, indices, values, own, words, order
        )
    csr = lockstep.SplitRows(*constant(indptr, middle, indices, values, squares[texts], own))
    return NodeRows(csr, words[:d], order[:d], n_shared)


def solve_in_lockstep(
    rows: NodeRows,
    group: Labels,
    params: PltParams,
    max_epochs: int,
    output: int,
    child_type: DTypeLike,
) -> NodeWeights:
    """Train one group of outputs in lockstep, on all the rows; releases the GIL while it works.

    Outputs are counted from ``output``.
    """
    labels = Labels(*constant(*group))
    limits = lockstep.LockstepLimits(
        params.seed, np.float32(params.eps), max_epochs, np.float32(params.prune)
    )
    n, d = len(rows.csr.own), len(rows.words)
    counts = np.zeros(d, np.int32)
    w, alpha = scratch("w", d + 1, np.float32), scratch("alpha", n * LANES, np.float32)
    store = lockstep.WeightStore(0, *(whole(name, 1 << 16, dtype) for name, dtype in STORE.items()))
    with kept("W", rows.n_shared * LANES, np.float32) as W:
        memory = lockstep.LockstepMemory(w, W, alpha)
        store, bias, stats = lockstep.train(rows.csr, labels, limits, memory, counts, store)
    for name in STORE:
        remember(name, getattr(store, name))
    used = int(np.count_nonzero(counts))
    words, entries = lasting("words", used, np.int32), lasting("entries", used, np.int32)
    child = lasting("child", store.used, child_type)
    weight = lasting("weight", store.used, np.float32)
    lockstep.by_word(counts, store, rows.order, rows.words, output, words, entries, child, weight)
    return NodeWeights(words, entries, child, weight, bias, stats[:, 4] > 0)
