"""Texts as word pieces, with what a frozen encoder makes of them kept in a file."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coattail.arrays import Ragged
from coattail.files import atomic_file
from coattail.models import begun_with
from coattail.models.deep import batching
from coattail.models.deep.training.batch_pieces import Each, in_turn
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

    def batch(self, rows: NDArray[np.int64], device: str) -> batching.Batch:
        """The texts ``rows``, padded, with their states if they are kept."""
        batch = batching.pad(self.tokens, rows, UNCUT, device)
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
        return list(batching.sorted_batches(self.tokens.lengths, size))


def keep_states(
    tokens: Ragged,
    encode: Callable[[batching.Batch], Tensor],
    *,
    width: int,
    one_each: bool,
    precision: str,
    budget_mb: int,
    batch: int,
    device: str,
    identity: bytes,
    each: Each = in_turn,
    folder: Path | None = None,
    name: str = "encode",
) -> WordPieces:
    """Encode every text once and keep the states, unless they need more than ``budget_mb``.

    With a ``folder`` the file is named after all that it depends on (``identity`` is the encoder's)
    and stays, so that the next training over the same texts reads it; files of other texts or
    encoders go when all together need more than the budget. Without one it is gone when the process
    ends. ``each`` may share the batches out among threads.
    """
    plain = WordPieces(tokens, one_each=one_each)
    shape = (tokens.n if one_each else int(tokens.indptr[-1]), width)
    needed = shape[0] * width * np.dtype(precision).itemsize
    if not needed:
        return plain
    if needed > budget_mb * 1_000_000:
        log.warning(
            "%s: states need %d MB, cache_mb is %d; texts are encoded anew in every epoch",
            name,
            needed // 1_000_000,
            budget_mb,
        )
        return plain

    def encode_to(file: Path | IO[bytes]) -> np.memmap:
        states = np.memmap(file, precision, "w+", shape=shape)

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
        return states

    if folder is None:
        with tempfile.TemporaryFile() as file:
            return replace(plain, states=encode_to(file))
    # The last bits depend on which texts are padded together, so on the batch, too.
    things = [begun_with.FORMAT, begun_with.code(), identity, tokens, *shape, batch, device]
    path = folder / f"{begun_with.digest(things)}.{precision}"
    if path.exists() and path.stat().st_size == needed:
        path.touch()
        log.info("%s: states of %d texts are there from before", name, tokens.n)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        _make_room(folder, budget_mb * 1_000_000 - needed)
        with atomic_file(path) as unfinished:
            encode_to(unfinished).flush()
    return replace(plain, states=np.memmap(path, precision, "r", shape=shape))


def _make_room(folder: Path, budget: int) -> None:
    """Remove the files used longest ago until the others need at most ``budget`` bytes."""
    finished = (path for path in folder.iterdir() if not path.name.startswith("."))
    for path in sorted(finished, key=lambda path: -path.stat().st_mtime):
        budget -= path.stat().st_size
        if budget < 0:
            path.unlink(missing_ok=True)
