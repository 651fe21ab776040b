"""Texts as padded batches of similar length, and the checks at the door."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from coattail.arrays import Ragged
from coattail.data.text import PAD, UNK
from coattail.errors import DataError

# Lengths are rounded up to this, so that few different tensor shapes occur: libraries prepare
# (and remember) a plan per shape.
ROUND = 8
POOL = 32


@dataclass(frozen=True)
class Batch:
    """Some texts, padded: ``ids`` int64 (B, T), ``lengths`` int64 (B,), ``rows`` their numbers.

    ``rest`` are the words after the cut, int64 (N,), each of the text ``rest_of`` of the batch.
    ``states`` is what a frozen encoder makes of them, where that is known: float (B, T, d), or
    (B, d) for a network that reads one vector per text.
    """

    rows: NDArray[np.int64]
    ids: Tensor
    lengths: Tensor
    rest: Tensor
    rest_of: Tensor
    states: Tensor | None = None


def check_tokens(tokens: Ragged, vocabulary_size: int, what: str) -> None:
    """Raise DataError for token ids outside the vocabulary, naming the text."""
    if not len(tokens.values):
        return
    low, high = int(tokens.values.min()), int(tokens.values.max())
    if low >= 0 and high < vocabulary_size:
        return
    bad = int(np.flatnonzero((tokens.values < 0) | (tokens.values >= vocabulary_size))[0])
    row = int(np.searchsorted(tokens.indptr, bad, "right")) - 1
    raise DataError(
        f"{what}: text {row} holds token id {tokens.values[bad]}, but the vocabulary has "
        f"{vocabulary_size} words; tokens and vocabulary.txt come from different runs of preprocess"
    )


def check_labels(n_texts: int, Y: sp.csr_matrix, what: str) -> None:
    if n_texts != Y.shape[0]:
        raise DataError(f"{what}: {n_texts} texts but {Y.shape[0]} rows of labels")
    if Y.shape[1] == 0:
        raise DataError(f"{what}: there are no labels to learn")


def check_vectors(vectors: NDArray, vocabulary_size: int) -> None:
    if vectors.ndim != 2 or vectors.shape[0] != vocabulary_size:
        raise DataError(
            f"word vectors have shape {vectors.shape}; wanted ({vocabulary_size}, dimension), one "
            "row per line of vocabulary.txt: run dvc repro preprocess"
        )


def used_lengths(tokens: Ragged, max_tokens: int) -> NDArray[np.int64]:
    """Words of every text after cutting; an empty text counts one (the unknown word)."""
    return np.clip(tokens.lengths, 1, max_tokens)


def pad(
    tokens: Ragged,
    rows: NDArray[np.int64],
    max_tokens: int,
    device: str | torch.device,
    *,
    multiple: int = ROUND,
    empty: int = UNK,
) -> Batch:
    """A batch of the given texts, its width a multiple of ``multiple``.

    An empty text becomes the one word ``empty``: attention wants something to look at.
    """
    begin, end = tokens.indptr[rows], tokens.indptr[rows + 1]
    cut = np.minimum(begin + max_tokens, end)
    lengths = np.maximum(cut - begin, 1)
    width = -(-int(lengths.max()) // multiple) * multiple
    ids = np.full((len(rows), width), PAD, np.int64)
    ids[begin == end, 0] = empty
    ids[np.arange(width) < (cut - begin)[:, None]] = _slices(tokens.values, begin, cut)
    rest = _slices(tokens.values, cut, end)
    rest_of = np.repeat(np.arange(len(rows)), end - cut)
    arrays = (ids, lengths, rest, rest_of)
    return Batch(rows, *(torch.from_numpy(array).to(device) for array in arrays))


def _slices(values: NDArray, begin: NDArray, end: NDArray) -> NDArray[np.int64]:
    """``values[begin[i]:end[i]]`` for all i, one after the other."""
    sizes = end - begin
    places = np.repeat(begin - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
    return np.asarray(values[places], np.int64)


def epoch_batches(
    lengths: NDArray[np.int64], batch: int, rng: np.random.Generator, pool: int = POOL
) -> list[NDArray[np.int64]]:
    """Every text once, in random batches whose texts have similar lengths.

    Texts are sorted by length within ``pool`` batches drawn at random.
    """
    order = rng.permutation(len(lengths))
    pools = np.split(order, np.arange(batch * pool, len(order), batch * pool))
    batches: list[NDArray[np.int64]] = []
    for drawn in pools:
        drawn = drawn[np.argsort(lengths[drawn], kind="stable")]
        batches += np.split(drawn, np.arange(batch, len(drawn), batch))
    return [batches[i] for i in rng.permutation(len(batches))]


class Shuffles:
    """Batches of every epoch from one row of random numbers, whichever epoch is asked for first."""

    def __init__(
        self, lengths: NDArray[np.int64], batch: int, seed: list[int], pool: int = POOL
    ) -> None:
        self.lengths, self.batch, self.seed, self.pool = lengths, batch, seed, pool
        self._restart()

    def __call__(self, epoch: int) -> list[NDArray[np.int64]]:
        if epoch < self._next:
            self._restart()
        while self._next <= epoch:
            found = epoch_batches(self.lengths, self.batch, self._rng, self.pool)
            self._next += 1
        return found

    def _restart(self) -> None:
        self._rng, self._next = np.random.default_rng(self.seed), 0


def sorted_batches(lengths: NDArray[np.int64], batch: int) -> Iterator[NDArray[np.int64]]:
    """Every text once, shortest first: for prediction, where order is restored afterwards."""
    order = np.argsort(lengths, kind="stable")
    yield from np.split(order, np.arange(batch, len(order), batch)) if len(order) else ()


def dense_targets(Y: sp.csr_matrix, rows: NDArray[np.int64], device: str | torch.device) -> Tensor:
    """Labels of a batch as float32 (B, L)."""
    return torch.from_numpy(Y[rows].toarray().astype(np.float32, copy=False)).to(device)
