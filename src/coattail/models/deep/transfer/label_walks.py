"""Labels as vectors: random walks over the graph of labels that occur together."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def random_walks(
    graph: sp.csr_matrix, walks: int, length: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Walks (labels * walks, length) from every label to a random neighbour at each step.

    A label without neighbours stays where it is.
    """
    degree = np.diff(graph.indptr)
    out = np.empty((graph.shape[0] * walks, length), np.int64)
    out[:, 0] = np.repeat(np.arange(graph.shape[0]), walks)
    for step in range(1, length):
        here = out[:, step - 1]
        place = graph.indptr[here] + np.floor(rng.random(len(here)) * degree[here]).astype(np.int64)
        place = np.minimum(place, max(graph.nnz - 1, 0))
        there = graph.indices[place] if graph.nnz else here
        out[:, step] = np.where(degree[here] > 0, there, here)
    return out


def window_counts(walks: NDArray[np.int64], window: int, n_labels: int) -> sp.csr_matrix:
    """How often two labels stand within ``window`` steps of each other, both ways counted."""
    total = sp.csr_matrix((n_labels, n_labels))
    for offset in range(1, min(window, walks.shape[1] - 1) + 1):
        one, other = walks[:, :-offset].ravel(), walks[:, offset:].ravel()
        pairs = sp.coo_matrix((np.ones(len(one)), (one, other)), shape=total.shape)
        total = total + pairs.tocsr() + pairs.T.tocsr()
    return sp.csr_matrix(total)


def positive_pmi(counts: sp.csr_matrix) -> sp.csr_matrix:
    """log of (count * total) / (row sum * column sum) where that is positive.

    Skip-gram with negative sampling, which is what DeepWalk trains, factorises this matrix.
    """
    found = counts.tocoo()
    rows = np.asarray(counts.sum(axis=1)).ravel()
    columns = np.asarray(counts.sum(axis=0)).ravel()
    expected = rows[found.row] * columns[found.col] / max(rows.sum(), 1e-12)
    values = np.maximum(np.log(found.data / expected), 0)
    out = sp.csr_matrix((values, (found.row, found.col)), shape=counts.shape)
    out.eliminate_zeros()
    return out


def embed(matrix: sp.csr_matrix, dim: int, rng: np.random.Generator) -> Floats:
    """Unit rows (labels, dim) of a truncated SVD, U sqrt(S); zeros beyond the rank."""
    size = matrix.shape[0]
    rank = min(dim, size)
    Q = np.linalg.qr(matrix @ rng.normal(size=(size, min(rank + 8, size))))[0]
    for _ in range(2):  # power iterations sharpen the directions
        Q = np.linalg.qr(matrix @ (matrix.T @ Q))[0]
    left, values, _ = np.linalg.svd((matrix.T @ Q).T, full_matrices=False)
    U = (Q @ left[:, :rank]) * np.sqrt(values[:rank])
    lengths = np.linalg.norm(U, axis=1, keepdims=True)
    out = np.zeros((size, dim))
    out[:, : U.shape[1]] = U / np.where(lengths > 1e-9, lengths, 1)
    return out
