"""Taug: split labels into head and tail, and enlarge the tail's texts by dropout and swap.

The split sorts labels by frequency; the first ``floor(tau * L)`` are the head. A text joins a block
if it has at least one label of that block, and its labels are cut to the block. Only texts of the
tail are copied. Labels are never changed by a copy.

Two things differ from the authors' code on purpose: every copy draws from its own generator (there
the swap routine seeds itself, so all its copies are the same), and dropout never empties a text (a
text that would lose every word keeps them all).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import Field

from coattail.arrays import as_csr, unit_rows
from coattail.config import Params
from coattail.data.features import Block, Features, save_training
from coattail.errors import DataError

log = logging.getLogger("coattail")

RECIPE = "augment.json"  # beside the blocks: the params that made them
VALIDATION = (1,)  # what the seeds of copies of validation texts end with


class AugmentParams(Params):
    """A variant of the section ``augment_tails``."""

    tau: float = Field(
        0.1,
        ge=0,
        le=1,
        description="share of the labels, most frequent first, that form the head; 0: all are tail",
    )
    n_aug: int = Field(
        4, ge=0, le=100, description="copies asked for per text of the tail; 0 makes none"
    )
    copies: Literal["as_coded", "as_printed"] = Field(
        "as_coded",
        description="how n_aug is read: as_coded makes n_aug // 2 + 1 copies by each technique (4 "
        "gives 7 times the texts), as_printed n_aug copies in all (4 gives 5 times the texts)",
    )
    dropout: bool = Field(True, description="make copies that forget words")
    drop: float = Field(0.1, ge=0, lt=1, description="probability that a word is forgotten")
    swap: bool = Field(True, description="make copies that exchange the values of pairs of words")
    swap_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="exchanges per text, as a share of the mean number of words of a tail text (at "
        "least one)",
    )
    decouple: bool = Field(
        True,
        description="train head and tail apart; false: one block of all labels, in which texts of "
        "the tail have copies",
    )
    renormalise: bool = Field(
        False,
        description="scale every copy back to unit length (neither the paper nor its code does)",
    )
    seed: int = Field(0, ge=0, description="seed of all copies")


def augment(
    X: sp.csr_matrix,
    Y: sp.csr_matrix,
    params: AugmentParams,
    counts: NDArray[np.integer] | None = None,
) -> list[Block]:
    """Training blocks of Taug: ``head`` and ``tail``, or one ``all`` when they are not decoupled.

    Parameters
    ----------
    X : csr (n, words)
        Texts; not changed.
    Y : csr (n, labels)
        Labels of the training texts.
    params : AugmentParams
    counts : int (labels,), optional
        Texts per label that decide the order of frequency; by default those of ``Y``.

    Returns
    -------
    list of Block
        The blocks' labels are a partition of all labels, each ascending. A block without labels is
        left out; a tail that no text has joins the head, since nothing can be learned of it alone.
    """
    X, Y = as_csr(X, "X"), as_csr(Y, "Y")
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"X has {X.shape[0]} texts but Y has {Y.shape[0]}; wanted the same number")
    if Y.nnz == 0:
        raise DataError("no training text has a label, so there is nothing to augment; check Y")
    blocks = _blocks(X, Y, *_split(Y, counts, params), params)
    if params.decouple:
        _warn_of_labels_without_negatives(blocks, params.tau)
    return blocks


def _blocks(
    X: sp.csr_matrix,
    Y: sp.csr_matrix,
    head: NDArray[np.int32],
    tail: NDArray[np.int32],
    params: AugmentParams,
    stream: tuple[int, ...] = (),
) -> list[Block]:
    """The blocks of a split; ``stream`` tells random numbers of further texts from the first."""
    if not params.decouple:
        return [_whole(X, Y, tail, params, stream)]
    blocks = []
    if len(head):
        blocks.append(_cut("head", X, Y, head))
    if len(tail):
        block = _cut("tail", X, Y, tail)
        X_tail, Y_tail = _with_copies(block.X, block.Y, params, stream)
        blocks.append(Block("tail", X_tail, Y_tail, tail))
    return blocks


# --- on disk, and with validation texts -----------------------------------------------------------


def save(folder: str | Path, blocks: list[Block], params: AugmentParams) -> None:
    """Write the blocks, and how they were made, so that further texts can be treated the same."""
    save_training(folder, blocks)
    (Path(folder) / RECIPE).write_text(params.model_dump_json(indent=1) + "\n")


def with_validation(folder: str | Path, blocks: list[Block], features: Features) -> list[Block]:
    """The training blocks of ``folder`` with the validation texts behind their own texts.

    Where the blocks are those of Taug, validation texts are treated as training texts were: a text
    joins the blocks of its labels, and those of the tail are copied. The split of the labels stays.
    """
    X, Y = features.X("valid"), features.Y("valid")
    path = Path(folder) / RECIPE
    if not (Path(folder) / "blocks.json").exists():
        more = [Block(block.name, X, Y, block.labels) for block in blocks]
    elif path.exists():
        params = AugmentParams.model_validate_json(path.read_text())
        head, tail = _split(features.Y("train"), None, params)
        more = _blocks(X, Y, head, tail, params, VALIDATION)
    else:
        raise DataError(f"{path} is missing; run dvc repro augment_tails")
    return [
        Block(
            block.name,
            sp.csr_matrix(sp.vstack([block.X, new.X], format="csr")),
            sp.csr_matrix(sp.vstack([block.Y, new.Y], format="csr")),
            block.labels,
        )
        for block, new in zip(blocks, more, strict=True)
    ]


# --- the parts ------------------------------------------------------------------------------------


def _split(
    Y: sp.csr_matrix, counts: NDArray[np.integer] | None, params: AugmentParams
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Head and tail; a tail that no text has joins the head."""
    head, tail = split_labels(_counts(Y) if counts is None else np.asarray(counts), params.tau)
    if len(head) and Y[:, tail].nnz == 0:
        return np.arange(Y.shape[1], dtype=np.int32), tail[:0]
    return head, tail


def split_labels(
    counts: NDArray[np.integer], tau: float
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Head and tail label ids, ascending; equal counts go to the head in order of id."""
    order = np.argsort(-np.asarray(counts, np.int64), kind="stable")
    # 0.29 * 100 is 28.999...96: the tiny shift makes floor mean what a person expects.
    size = int(np.floor(tau * len(order) + 1e-9))
    return np.sort(order[:size]).astype(np.int32), np.sort(order[size:]).astype(np.int32)


def copies_of_each(params: AugmentParams) -> tuple[int, int]:
    """How many (swap, dropout) copies every tail text gets."""
    if params.n_aug == 0 or not (params.swap or params.dropout):
        return 0, 0
    if params.copies == "as_coded":
        each = params.n_aug // 2 + 1
        return each * params.swap, each * params.dropout
    if params.swap and params.dropout:
        return params.n_aug // 2, params.n_aug - params.n_aug // 2
    return params.n_aug * params.swap, params.n_aug * params.dropout


def swap_values(X: sp.csr_matrix, times: int, rng: np.random.Generator) -> sp.csr_matrix:
    """In every row, ``times`` times, exchange the values of two different stored words."""
    data = X.data.copy()
    lengths = np.diff(X.indptr)
    rows = np.flatnonzero(lengths >= 2)
    start, length = X.indptr[rows].astype(np.int64), lengths[rows]
    for _ in range(times):
        first = rng.integers(0, length)
        second = rng.integers(0, length - 1)
        second += second >= first
        one, two = start + first, start + second
        data[one], data[two] = data[two], data[one]
    return _like(X, X.indptr, X.indices, data)


def drop_words(X: sp.csr_matrix, rate: float, rng: np.random.Generator) -> sp.csr_matrix:
    """Remove every stored word with probability ``rate``; no row loses all its words."""
    keep = rng.random(X.nnz) >= rate
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    lengths = np.diff(X.indptr)
    emptied = (np.diff(kept_before[X.indptr]) == 0) & (lengths > 0)
    keep |= np.repeat(emptied, lengths)
    indptr = np.concatenate([[0], np.cumsum(keep)])[X.indptr]
    return _like(X, indptr, X.indices[keep], X.data[keep])


def _with_copies(
    X: sp.csr_matrix, Y: sp.csr_matrix, params: AugmentParams, stream: tuple[int, ...]
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """The texts followed by their swap copies and their dropout copies, labels repeated."""
    swaps, drops = copies_of_each(params)
    mean_words = X.nnz / max(X.shape[0], 1)
    times = max(1, int(np.floor(params.swap_share * mean_words + 1e-9)))
    # One generator per copy, told apart by technique and number: adding a copy changes no other.
    copies = [
        swap_values(X, times, np.random.default_rng([params.seed, 0, copy, *stream]))
        for copy in range(swaps)
    ]
    copies += [
        drop_words(X, params.drop, np.random.default_rng([params.seed, 1, copy, *stream]))
        for copy in range(drops)
    ]
    if not copies:
        return X, Y
    if params.renormalise:
        copies = [unit_rows(copy) for copy in copies]
    stacked_X = sp.vstack([X, *copies], format="csr", dtype=np.float32)
    stacked_Y = sp.vstack([Y] * (1 + len(copies)), format="csr", dtype=np.float32)
    return stacked_X, stacked_Y


def _whole(
    X: sp.csr_matrix,
    Y: sp.csr_matrix,
    tail: NDArray,
    params: AugmentParams,
    stream: tuple[int, ...],
) -> Block:
    """One block of all labels: every text, then copies of the texts that have a tail label."""
    labels = np.arange(Y.shape[1], dtype=np.int32)
    rows = np.flatnonzero(np.diff(Y[:, tail].tocsr().indptr))
    X_tail, Y_tail = _with_copies(X[rows], Y[rows], params, stream)
    if X_tail.shape[0] == len(rows):
        return Block("all", X, Y, labels)
    stacked_X = sp.vstack([X, X_tail[len(rows) :]], format="csr", dtype=np.float32)
    stacked_Y = sp.vstack([Y, Y_tail[len(rows) :]], format="csr", dtype=np.float32)
    return Block("all", stacked_X, stacked_Y, labels)


def _warn_of_labels_without_negatives(blocks: list[Block], tau: float) -> None:
    """A block holds only texts with a label of it: one that all of them have cannot be learned."""
    for block in blocks:
        always = int(np.sum(_counts(block.Y) == block.X.shape[0]))
        if always:
            log.warning(
                "tau %g: all texts of the %s have %d of its %d labels, whose classifiers see no "
                "text without them and will say yes to any; raise tau so that the head has more "
                "labels, or set decouple: false",
                tau, block.name, always, len(block.labels),
            )  # fmt: skip


def _cut(name: str, X: sp.csr_matrix, Y: sp.csr_matrix, labels: NDArray[np.int32]) -> Block:
    """The texts with a label of the block, and those labels only."""
    cut = Y[:, labels].tocsr()
    rows = np.flatnonzero(np.diff(cut.indptr))
    return Block(name, X[rows], cut[rows], labels)


def _counts(Y: sp.csr_matrix) -> NDArray[np.int64]:
    return np.bincount(Y.indices, minlength=Y.shape[1])


def _like(X: sp.csr_matrix, indptr: NDArray, indices: NDArray, data: NDArray) -> sp.csr_matrix:
    out = sp.csr_matrix((data, indices.copy(), indptr.copy()), shape=X.shape)
    out.has_canonical_format = True  # columns keep their order, so nothing needs sorting
    return out
