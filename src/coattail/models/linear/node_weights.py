"""Classifiers of a label tree as arrays, sorted by node and, within a node, by word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from coattail.kernels.runtime import pool

COPIED = 64  # nodes whose weights a thread copies before it takes others


@dataclass(frozen=True)
class TreeWeights:
    """Classifiers of one tree, node by node and word by word, as the beam search reads them.

    Outputs of node v, its child nodes and then its labels, are ``output[v]:output[v + 1]``; its
    words ``words[node_word[v]:node_word[v + 1]]``; the word in slot s adds ``weight`` to ``child``
    (counted within v) for the entries ``entry[s]:entry[s + 1]``.
    """

    output: NDArray[np.int64]  # (m + 1,)
    bias: NDArray[np.float32]  # (outputs,)
    node_word: NDArray[np.int64]  # (m + 1,)
    words: NDArray[np.int32]
    entry: NDArray[np.integer[Any]]  # (len(words) + 1,), int32 where that is enough, else int64
    child: NDArray[np.integer[Any]]  # uint16 where that is enough, else int32
    weight: NDArray[np.float32]


@dataclass(frozen=True)
class NodeWeights:
    """Weights of some outputs of a node, grouped by word as in `TreeWeights`; words are sorted."""

    words: NDArray[np.int32]
    entries: NDArray[np.int32]  # of every word
    child: NDArray[np.integer[Any]]  # within the node
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    limited: NDArray[np.bool_]  # of every output: it ended at the limit of rounds or epochs


def assemble(n_nodes: int, done: dict[int, list[tuple[int, NodeWeights]]]) -> TreeWeights:
    """Concatenate the weights of all nodes; ``done`` is emptied."""
    nodes = sorted(done)
    whole = [_joined([part for _, part in sorted(done.pop(v), key=lambda p: p[0])]) for v in nodes]
    output, node_word = np.zeros(n_nodes + 1, np.int64), np.zeros(n_nodes + 1, np.int64)
    output[1:][nodes] = [len(node.bias) for node in whole]
    node_word[1:][nodes] = [len(node.words) for node in whole]
    columns = {name: [getattr(node, name) for node in whole] for name in vars(whole[0])}
    whole.clear()
    # One column at a time: its parts are freed before the next is copied.
    bias, words, child, weight = (
        _concatenated(columns.pop(name)) for name in ("bias", "words", "child", "weight")
    )
    entry = _concatenated(columns.pop("entries"), np.int32 if len(child) < 2**31 else np.int64, 1)
    np.cumsum(entry, out=entry)
    return TreeWeights(np.cumsum(output), bias, np.cumsum(node_word), words, entry, child, weight)


def _concatenated(
    arrays: list[NDArray], dtype: DTypeLike | None = None, zeros: int = 0
) -> NDArray[Any]:
    """Concatenate arrays after a number of zeros, in all threads."""
    ends = zeros + np.cumsum([len(array) for array in arrays])
    whole = np.empty(ends[-1], dtype or arrays[0].dtype)
    whole[:zeros] = 0

    def copy(limits: tuple[int, int]) -> None:
        first, last = limits
        place = slice(ends[first] - len(arrays[first]), ends[last - 1])
        np.concatenate(arrays[first:last], out=whole[place])

    list(pool.each(copy, pool.chunks(len(arrays), COPIED)))
    return whole


def _joined(parts: list[NodeWeights]) -> NodeWeights:
    """Merge the parts in which the outputs of a node were trained."""
    if len(parts) == 1:
        return parts[0]
    word = np.concatenate([np.repeat(part.words, part.entries) for part in parts])
    order = np.argsort(word, kind="stable")
    words, entries = np.unique(word, return_counts=True)
    child, weight, bias, limited = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("child", "weight", "bias", "limited")
    )
    return NodeWeights(words, entries.astype(np.int32), child[order], weight[order], bias, limited)
