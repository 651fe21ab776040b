"""Texts as word pieces, with what a frozen encoder makes of them kept in a file."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coattail.arrays import Ragged
from coattail.deep import data
from coattail.deep.pieces import Each, in_turn
from coattail.progress import progress

log = logging.getLogger("coattail")

UNCUT = 1 << 30  # pieces are cut when they are made


@dataclass(frozen=True)
class WordPieces:
    """Texts ready for a network.

    Attributes
    ----------
    tokens : ids of the word pieces, already cut.
    states : (pieces of all texts, d), or (texts, d) if ``one_each``; None: not kept.
    """

    tokens: Ragged
    states: NDArray | None = None
    one_each: bool = False

    def batch(self, rows: NDArray[np.int64], device: str) -> data.Batch:
        """The texts ``rows``, padded, with their states if they are kept."""
        batch = data.pad(self.tokens, rows, UNCUT, device)
        if self.states is None:
            return batch
        if self.one_each:
            found = self.states[rows].astype(np.float32)
        else:
            found = np.zeros((*batch.ids.shape, self.states.shape[1]), np.float32)
            for place, row in enumerate(rows):
                begin, end = self.tokens.indptr[row : row + 2]
                found[place, : end - begin] = self.states[begin:end]
        return replace(batch, states=torch.from_numpy(found).to(device))

    def batches(self, size: int) -> list[NDArray[np.int64]]:
        """Rows of all batches, texts of similar length together."""
        return list(data.sorted_batches(self.tokens.lengths, size))


def keep_states(
    tokens: Ragged,
    encode: Callable[[data.Batch], Tensor],
    *,
    width: int,
    one_each: bool,
    precision: str,
    budget_mb: int,
    batch: int,
    device: str,
    each: Each = in_turn,
    folder: Path | None = None,
    name: str = "encode",
) -> WordPieces:
    """Encode every text once and keep the states, unless they need more than ``budget_mb``.

    The file has no name (it is gone when the process ends, however it ends) and lies in ``folder``,
    else where temporary files go. ``each`` may share the batches out among threads.
    """
    plain = WordPieces(tokens, one_each=one_each)
    rows = tokens.n if one_each else int(tokens.indptr[-1])
    needed = rows * width * np.dtype(precision).itemsize
    if not rows:
        return plain
    if needed > budget_mb * 1_000_000:
        log.warning(
            "%s: states need %d MB, cache_mb is %d; texts are encoded anew in every epoch",
            name,
            needed // 1_000_000,
            budget_mb,
        )
        return plain
    with tempfile.TemporaryFile(dir=folder) as file:
        states = np.memmap(file, precision, "w+", shape=(rows, width))

    def keep(chosen: NDArray[np.int64]) -> None:
        with torch.inference_mode():
            found = encode(plain.batch(chosen, device)).cpu().numpy()
        if one_each:
            states[chosen] = found
        else:
            for place, row in enumerate(chosen):
                begin, end = tokens.indptr[row : row + 2]
                states[begin:end] = found[place, : end - begin]
        bar.advance(len(chosen))

    with progress(name, tokens.n, "texts") as bar:
        each(keep, plain.batches(batch))
    return replace(plain, states=states)
