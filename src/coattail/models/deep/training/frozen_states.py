"""Texts as word pieces, and a file that caches the states of a frozen encoder."""

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


@dataclass(frozen=True)
class Keeping:
    """How and where states of an encoder are cached.

    With a ``folder`` the file is named after all that it depends on and stays, so that the next
    training over the same texts reads it; files of other texts or encoders go when all together
    need more than the budget. Without one it is gone when the process ends.
    """

    width: int  # of a state
    one_each: bool  # one state per text, else one per piece
    precision: str  # of the numbers in the file
    budget_mb: int  # texts that need more are not kept
    batch: int  # texts encoded at a time
    device: str
    identity: bytes  # tells this encoder from others
    folder: Path | None = None

    def shape(self, tokens: Ragged) -> tuple[int, int]:
        return (tokens.n if self.one_each else int(tokens.indptr[-1])), self.width

    def file(self, tokens: Ragged, folder: Path) -> Path:
        shape = self.shape(tokens)
        # The last bits depend on which texts are padded together, so on the batch, too.
        what = [begun_with.FORMAT, begun_with.code(), self.identity, tokens]
        digest = begun_with.digest([*what, *shape, self.batch, self.device])
        return folder / f"{digest}.{self.precision}"


Encode = Callable[[batching.Batch], Tensor]


def keep_states(
    tokens: Ragged, encode: Encode, keeping: Keeping, each: Each = in_turn, name: str = "encode"
) -> WordPieces:
    """Encode every text once and keep the states, unless they need more than the budget.

    ``each`` may share the batches out among threads.
    """
    plain = WordPieces(tokens, one_each=keeping.one_each)
    shape, room = keeping.shape(tokens), keeping.budget_mb * 1_000_000
    needed = shape[0] * shape[1] * np.dtype(keeping.precision).itemsize
    if not needed:
        return plain
    if needed > room:
        words = "%s: states need %d MB, cache_mb is %d; texts are encoded anew in every epoch"
        log.warning(words, name, needed // 1_000_000, keeping.budget_mb)
        return plain
    if keeping.folder is None:
        with tempfile.TemporaryFile() as file:
            return replace(plain, states=_encode_to(file, plain, encode, keeping, each, name))
    path = keeping.file(tokens, keeping.folder)
    if path.exists() and path.stat().st_size == needed:
        path.touch()
        log.info("%s: states of %d texts are there from before", name, tokens.n)
    else:
        keeping.folder.mkdir(parents=True, exist_ok=True)
        _make_room(keeping.folder, room - needed)
        with atomic_file(path) as unfinished:
            _encode_to(unfinished, plain, encode, keeping, each, name).flush()
    return replace(plain, states=np.memmap(path, keeping.precision, "r", shape=shape))


def _encode_to(
    file: Path | IO[bytes],
    texts: WordPieces,
    encode: Encode,
    keeping: Keeping,
    each: Each,
    name: str,
) -> np.memmap:
    tokens = texts.tokens
    states = np.memmap(file, keeping.precision, "w+", shape=keeping.shape(tokens))

    def keep(chosen: NDArray[np.int64]) -> None:
        with torch.inference_mode():
            found = encode(texts.batch(chosen, keeping.device)).cpu().numpy()
        if keeping.one_each:
            states[chosen] = found
        else:
            for place, row in enumerate(chosen):
                begin, end = tokens.indptr[row : row + 2]
                states[begin:end] = found[place, : end - begin]
        bar.advance(len(chosen))

    with progress(name, tokens.n, "texts") as bar:
        each(keep, texts.batches(keeping.batch))
    return states


def _make_room(folder: Path, budget: int) -> None:
    """Remove the files used longest ago until the others need at most ``budget`` bytes."""
    finished = (path for path in folder.iterdir() if not path.name.startswith("."))
    for path in sorted(finished, key=lambda path: -path.stat().st_mtime):
        budget -= path.stat().st_size
        if budget < 0:
            path.unlink(missing_ok=True)
