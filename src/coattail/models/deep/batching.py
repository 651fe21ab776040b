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
from coattail.errors import DataError

PAD, UNK = 0, 1
# Lengths are rounded up to this, so that few different tensor shapes occur: libraries prepare
# (and remember) a plan per shape.
ROUND = 8
# Texts are sorted by length within so many batches drawn at random.
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


def check_labels(tokens: Ragged, Y: sp.csr_matrix, what: str) -> None:
    if tokens.n != Y.shape[0]:
        raise DataError(f"{what}: {tokens.n} texts but {Y.shape[0]} rows of labels")
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
    tokens: Ragged, rows: NDArray[np.int64], max_tokens: int, device: str | torch.device
) -> Batch:
    """A batch of the given texts; an empty one becomes the unknown word."""
    lengths = used_lengths(tokens, max_tokens)[rows]
    width = -(-int(lengths.max()) // ROUND) * ROUND
    ids = np.full((len(rows), width), PAD, np.int64)
    rest = []
    for place, row in enumerate(rows):
        words = tokens.row(int(row))
        ids[place, : lengths[place]] = words[:max_tokens] if len(words) else UNK
        rest.append(words[max_tokens:])
    rest_of = np.repeat(np.arange(len(rows)), [len(words) for words in rest])
    arrays = (ids, lengths, np.concatenate(rest).astype(np.int64), rest_of)
    return Batch(rows, *(torch.from_numpy(array).to(device) for array in arrays))


def epoch_batches(
    lengths: NDArray[np.int64], batch: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Every text once, in random batches whose texts have similar lengths."""
    order = rng.permutation(len(lengths))
    pools = np.split(order, np.arange(batch * POOL, len(order), batch * POOL))
    batches: list[NDArray[np.int64]] = []
    for pool in pools:
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += np.split(pool, np.arange(batch, len(pool), batch))
    return [batches[i] for i in rng.permutation(len(batches))]


def sorted_batches(lengths: NDArray[np.int64], batch: int) -> Iterator[NDArray[np.int64]]:
    """Every text once, shortest first: for prediction, where order is restored afterwards."""
    order = np.argsort(lengths, kind="stable")
    yield from np.split(order, np.arange(batch, len(order), batch)) if len(order) else ()


def dense_targets(Y: sp.csr_matrix, rows: NDArray[np.int64], device: str | torch.device) -> Tensor:
    """Labels of a batch as float32 (B, L)."""
    return torch.from_numpy(Y[rows].toarray().astype(np.float32, copy=False)).to(device)
