"""Where training starts: word vectors from labels, and a closed-form linear head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from coattail.arrays import Ragged
from coattail.deep.data import PAD

SAMPLE = 2000  # texts used to turn the head's scores into logits


@dataclass(frozen=True)
class Head:
    """A low-rank linear model: logits = bag(text) @ weight + bias.

    The bag is the sum of ``table[word]`` over the words of a text, divided by the root of the sum
    of ``rarity[word]`` squared.
    """

    table: NDArray[np.float32]  # (V, d), rarity included
    rarity: NDArray[np.float32]  # (V,)
    weight: NDArray[np.float32]  # (d, L)
    bias: NDArray[np.float32]  # (L,)


def word_rarity(tokens: Ragged, vocabulary_size: int) -> NDArray[np.float64]:
    """ln(N / texts with the word) and a little, (V,); padding weighs nothing."""
    owner = np.repeat(np.arange(tokens.n), tokens.lengths)
    pairs = np.unique(owner * np.int64(vocabulary_size) + tokens.values)
    texts = np.bincount(pairs % vocabulary_size, minlength=vocabulary_size)
    weights = np.log(max(tokens.n, 1) / np.maximum(texts, 1)) + 0.1
    weights[PAD] = 0
    return weights


def bags(tokens: Ragged, rarity: NDArray[np.float64]) -> sp.csr_matrix:
    """Texts x words: counts times rarity, scaled as in ``Head``."""
    # Copies: adding up repeated words below happens in place.
    parts = (rarity[tokens.values], np.array(tokens.values), np.array(tokens.indptr))
    X = sp.csr_matrix(parts, shape=(tokens.n, len(rarity)))
    owner = np.repeat(np.arange(tokens.n), tokens.lengths)
    squares = np.bincount(owner, rarity[tokens.values] ** 2, minlength=tokens.n)
    X.data /= np.sqrt(np.maximum(squares, 1e-12))[owner]
    X.sum_duplicates()
    return X


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
    """Word vectors from the labels of the texts a word stands in: float32 (V, dim).

    Words that say nothing, and dimensions beyond the number of labels, are small random numbers.
    """
    rng = np.random.default_rng([seed, 7])
    vectors = rng.normal(0, 0.1, (vocabulary_size, dim))
    with threadpool_limits(1, "blas"):  # more threads add in another order
        U = label_directions(bags(tokens, word_rarity(tokens, vocabulary_size)), Y, dim, rng)
    vectors[:, : U.shape[1]] += 0.3 * U
    vectors[PAD] = 0
    return vectors.astype(np.float32)


def linear_head(
    tokens: Ragged, Y: sp.csr_matrix, vocabulary_size: int, dim: int, seed: int, ridge: float = 1e-2
) -> Head:
    """Fit the head: label directions, ridge regression, one scale and offset for logits."""
    with threadpool_limits(1, "blas"):  # as above
        return _linear_head(tokens, Y, vocabulary_size, dim, seed, ridge)


def _linear_head(
    tokens: Ragged, Y: sp.csr_matrix, vocabulary_size: int, dim: int, seed: int, ridge: float
) -> Head:
    rng = np.random.default_rng([seed, 17])
    rarity = word_rarity(tokens, vocabulary_size)
    X = bags(tokens, rarity)
    U = label_directions(X, Y, dim, rng)
    F = np.asarray(X @ U)  # (n, d)
    mean = F.mean(axis=0)
    F -= mean
    prior = np.asarray(Y.mean(axis=0)).ravel()
    G = F.T @ F
    G[np.diag_indices_from(G)] += ridge * max(np.trace(G) / len(G), 1e-12)
    W = np.linalg.solve(G, np.asarray((Y.T @ F).T))  # (d, L); F is centred, so Y need not be
    rows = np.sort(rng.permutation(tokens.n)[:SAMPLE])
    scale, offset = _logit_line(F[rows] @ W + prior, Y[rows].toarray())
    return Head(
        (U * rarity[:, None]).astype(np.float32),
        rarity.astype(np.float32),
        (scale * W).astype(np.float32),
        (offset + scale * (prior - mean @ W)).astype(np.float32),
    )


def _logit_line(guess: NDArray, truth: NDArray, rounds: int = 12) -> tuple[float, float]:
    """Scale and offset that make ``sigmoid(scale * guess + offset)`` likely: Newton's method."""
    line = np.array([1.0, float(np.log((truth.mean() + 1e-6) / (1 - truth.mean() + 1e-6)))])
    for _ in range(rounds):
        p = 1 / (1 + np.exp(-np.clip(line[0] * guess + line[1], -30, 30)))
        error, curve = p - truth, p * (1 - p)
        gradient = np.array([(error * guess).sum(), error.sum()])
        cross = (curve * guess).sum()
        hessian = np.array([[(curve * guess**2).sum(), cross], [cross, curve.sum()]])
        hessian[np.diag_indices(2)] += 1e-3
        line = line - np.clip(np.linalg.solve(hessian, gradient), -3, 3)
    return float(np.clip(line[0], 1.0, 50.0)), float(line[1])
