"""A label tree seen level by level, and candidates from one level to the next; arrays only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.labels.tree import Tree


@dataclass(frozen=True, eq=False)
class Level:
    """Clusters of one depth, or at the bottom the labels themselves.

    Attributes
    ----------
    parent : int64 (m,)
        Cluster of the level above that holds each item; zeros at the top.
    item : int64 (L,)
        The item of this level that holds each label; -1 for labels outside the tree.
    """

    parent: NDArray[np.int64]
    item: NDArray[np.int64]

    @property
    def n_items(self) -> int:
        return len(self.parent)

    def targets(self, Y: sp.csr_matrix) -> sp.csr_matrix:
        """Which items hold a label of each text: ones, (n, m)."""
        inside = np.flatnonzero(self.item >= 0)
        shape = (Y.shape[1], self.n_items)
        holds = sp.csr_matrix(
            (np.ones(len(inside), np.float32), (inside, self.item[inside])), shape
        )
        out = sp.csr_matrix(Y @ holds)
        out.data = np.ones_like(out.data)
        out.sort_indices()
        return out


def levels_of(tree: Tree) -> list[Level]:
    """The levels of a tree from the top down; the last one is the labels in the tree.

    A cluster whose labels hang higher than the deepest level is its own only child below.
    """
    seen = np.flatnonzero(tree.leaf >= 0)
    keys = [tree.ancestor(depth)[seen].astype(np.int64) for depth in range(1, tree.depth + 1)]
    keys.append(np.arange(len(seen)))
    levels: list[Level] = []
    above = np.zeros(len(seen), np.int64)
    for key in keys:
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        item = np.full(tree.n_labels, -1, np.int64)
        item[seen] = place
        levels.append(Level(above[first], item))
        above = place
    return levels


def choose_parents(
    true: sp.csr_matrix, predicted: TopK, rows: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Parents of training texts: true ones first, then the best predicted; -1 pads: (B, count).

    More true ones than ``count``: those that were predicted come first.
    """
    out = np.full((len(rows), count), -1, np.int64)
    for place, row in enumerate(rows):
        own = true.indices[true.indptr[row] : true.indptr[row + 1]]
        guesses = predicted.labels[row][predicted.labels[row] >= 0]
        right = np.isin(guesses, own)
        missed = own[~np.isin(own, guesses)]
        chosen = np.concatenate([guesses[right], missed, guesses[~right]])[:count]
        out[place, : len(chosen)] = chosen
    return out


class Family:
    """Children of every parent, for whole batches at a time."""

    def __init__(self, level: Level) -> None:
        self.n_items = level.n_items
        self._children = np.argsort(level.parent, kind="stable").astype(np.int64)
        n_parents = int(level.parent.max()) + 1
        self._first = np.searchsorted(level.parent[self._children], np.arange(n_parents + 1))

    def columns(self, parents: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Children of ``parents`` (B, C): items (B, W) and the column of their parent; -1 pads."""
        sizes = np.where(parents >= 0, np.diff(self._first)[parents], 0)
        width = max(int(sizes.sum(axis=1).max()), 1)
        items = np.full((len(parents), width), -1, np.int64)
        source = np.full((len(parents), width), -1, np.int64)
        for place, (row, size) in enumerate(zip(parents, sizes, strict=True)):
            total = int(size.sum())
            starts = np.repeat(self._first[row] - (np.cumsum(size) - size), size)
            items[place, :total] = self._children[starts + np.arange(total)]
            source[place, :total] = np.repeat(np.arange(len(row)), size)
        return items, source
