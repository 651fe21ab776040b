"""Label trees from texts and their labels: vectors of labels, clusters, numbered nodes."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import as_csr, parts, unit_rows
from coattail.errors import DataError
from coattail.labels.tree import Tree
from coattail.labels.tree_params import FlatTree, TreeParams

GATHERED = 1024  # labels whose texts one thread adds up before it takes others


FAINT = 0.1  # companions of a label that make up less of its length are left out


def label_vectors(
    X: sp.csr_matrix, Y: sp.csr_matrix, representation: str = "input"
) -> sp.csr_matrix:
    """Labels as unit rows: the sum of their texts' rows, of the labels beside them, or both.

    ``companions`` adds up the texts' labels as if they were words: unit rows of all labels of a
    text, weighted by the square of their inverse frequency, log(1 + n / count), FAINT ones dropped.
    """
    X, Y = as_csr(X, "X"), as_csr(Y, "Y")
    if representation == "companions":
        rarity = np.log1p(Y.shape[0] / np.maximum(np.bincount(Y.indices, Y.data != 0), 1)) ** 2
        weighted = (rarity[Y.indices] * (Y.data != 0), Y.indices, Y.indptr)
        W = unit_rows(sp.csr_matrix(weighted, shape=Y.shape))
        return unit_rows(_unit_sums(W, Y.T.tocsr(), FAINT))
    views = []
    if representation in ("input", "both"):
        views.append(_unit_sums(unit_rows(X), Y.T.tocsr()))
    if representation in ("cooccurrence", "both"):
        together = sp.csr_matrix(Y.T.tocsr() @ Y)
        together.setdiag(0)
        together.eliminate_zeros()
        views.append(unit_rows(together))
    if len(views) == 1:
        return views[0]
    return unit_rows(sp.csr_matrix(sp.hstack(views, format="csr")))


def _unit_sums(X: sp.csr_matrix, labels: sp.csr_matrix, least: float = 0.0) -> sp.csr_matrix:
    """``labels @ X`` with rows of length 1, without entries below ``least``; labels are (L, n)."""
    from coattail.kernels import node_texts
    from coattail.kernels.runtime import pool  # numba, only when it is needed
    from coattail.kernels.sparse import constant

    n_labels, n_words = len(labels.indptr) - 1, X.shape[1]
    texts = constant(labels.indptr.astype(np.int64), labels.indices, labels.data)
    add = partial(node_texts.unit_sums, *constant(*parts(X)), *texts)
    chunks = pool.chunks(n_labels, max(GATHERED, n_labels // 64))  # each clears its own scratch
    found = list(pool.each(lambda limits: add(*limits, n_words, np.float32(least)), chunks))
    lengths, words, sums = (np.concatenate(columns) for columns in zip(*found, strict=True))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return sp.csr_matrix((sums, words, indptr), shape=(n_labels, n_words))


def build(params: TreeParams, X: sp.csr_matrix, Y: sp.csr_matrix) -> list[Tree]:
    """The trees ``params`` asks for, over the labels of Y (n, L)."""
    counts = np.bincount(Y.indices[Y.data != 0], minlength=Y.shape[1])
    seen = np.flatnonzero(counts).astype(np.int32)
    if len(seen) == 0:
        raise DataError("a label tree needs at least one label with a training text; Y has none")
    if isinstance(params, FlatTree):
        return [_numbered([[seen]], Y.shape[1])]
    from coattail.labels.clustering import partitions, regrouped  # numba, only when it is needed

    V = label_vectors(X, Y, params.representation)
    trees = [
        _numbered(partitions(params, V, seen, params.seed + i), Y.shape[1])
        for i in range(params.trees)
    ]
    return [regrouped(tree, Y, params.leaf) for tree in trees] if params.regroup else trees


def _numbered(levels: list[list[NDArray[np.int32]]], n_labels: int) -> Tree:
    """A tree from the clusters of every level, the root's first; a cluster lies in one above it."""
    parent, above = [-1], np.full(n_labels, -1, np.int32)
    leaf = np.full(n_labels, -1, np.int32)
    leaf[levels[0][0]] = 0
    for level in levels[1:]:
        above[:] = leaf
        # Children of a node must be consecutive, also when some parents were not split.
        for cluster in sorted(level, key=lambda c: int(above[c[0]])):
            leaf[cluster] = len(parent)
            parent.append(int(above[cluster[0]]))
    return Tree(np.array(parent, np.int32), leaf)
