"""Word vectors to start from, computed from the labels of the texts that hold a word."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from coattail.arrays import Ragged, unit_rows
from coattail.data.text import PAD


def word_rarity(tokens: Ragged, vocabulary_size: int) -> NDArray[np.float64]:
    """ln(N / texts with the word) and a little, (V,); padding weighs nothing."""
    owner = np.repeat(np.arange(tokens.n), tokens.lengths)
    pairs = np.unique(owner * np.int64(vocabulary_size) + tokens.values)
    texts = np.bincount(pairs % vocabulary_size, minlength=vocabulary_size)
    weights = np.log(max(tokens.n, 1) / np.maximum(texts, 1)) + 0.1
    weights[PAD] = 0
    return weights


def bags(tokens: Ragged, rarity: NDArray[np.float64]) -> sp.csr_matrix:
    """Texts x words: (1 + ln count) times rarity, rows of length one, as ``CheapHead`` has them."""
    # Copies: adding up repeated words below happens in place.
    parts = (np.ones(len(tokens.values)), np.array(tokens.values), np.array(tokens.indptr))
    X = sp.csr_matrix(parts, shape=(tokens.n, len(rarity)))
    X.sum_duplicates()
    X.data = (1 + np.log(X.data)) * rarity[X.indices]
    return unit_rows(X)


def label_directions(
    X: sp.csr_matrix, Y: sp.csr_matrix, dim: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Word vectors (V, at most dim): a truncated SVD of words x labels, unit mean square."""
    per_label = np.maximum(np.asarray(Y.sum(axis=0)).ravel(), 1.0)
    M = sp.csr_matrix(X.T @ Y @ sp.diags(1 / np.sqrt(per_label)))  # (V, L)
    rank = min(dim, *M.shape)
    Q = np.linalg.qr(M @ rng.normal(size=(M.shape[1], min(rank + 8, M.shape[1]))))[0]
    for _ in range(2):  # power iterations sharpen the directions
        Q = np.linalg.qr(M @ (M.T @ Q))[0]
    left, values, _ = np.linalg.svd((M.T @ Q).T, full_matrices=False)
    rank = min(rank, len(values))
    U = (Q @ left[:, :rank]) * np.sqrt(values[:rank])
    seen = U.any(axis=1)
    return np.asarray(U / max(float(np.sqrt(np.mean(U[seen] ** 2))) if seen.any() else 0, 1e-12))


def label_vectors(
    tokens: Ragged, Y: sp.csr_matrix, vocabulary_size: int, dim: int, seed: int
) -> NDArray[np.float32]:
    """Word vectors from the labels of the texts that hold a word: float32 (V, dim).

    Small random numbers are added everywhere; they are all there is for words that tell nothing
    and for dimensions beyond the number of labels.
    """
    rng = np.random.default_rng([seed, 7])
    vectors = rng.normal(0, 0.1, (vocabulary_size, dim))
    with threadpool_limits(1, "blas"):  # more threads add in another order
        U = label_directions(bags(tokens, word_rarity(tokens, vocabulary_size)), Y, dim, rng)
    vectors[:, : U.shape[1]] += 0.3 * U
    vectors[PAD] = 0
    return vectors.astype(np.float32)


def bag_start(
    tokens: Ragged, Y: sp.csr_matrix, vocabulary_size: int, dim: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Where ``CheapHead`` starts: the words' directions (V, at most dim) and rarity (V,)."""
    rarity = word_rarity(tokens, vocabulary_size)
    with threadpool_limits(1, "blas"):  # as above
        U = label_directions(bags(tokens, rarity), Y, dim, np.random.default_rng([seed, 17]))
    return (0.3 * U).astype(np.float32), rarity.astype(np.float32)
