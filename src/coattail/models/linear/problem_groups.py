"""Binary problems that share rows: C of every label, training of groups, resuming."""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import Parts, parts
from coattail.config import Params
from coattail.files import atomic_file
from coattail.kernels import sparse
from coattail.kernels.lanes import LANES
from coattail.kernels.runtime import pool
from coattail.kernels.runtime.scratch import scratch
from coattail.kernels.solvers import active_set, logistic
from coattail.kernels.solvers.problems import Labels, Rows
from coattail.kernels.sparse import constant
from coattail.labels import weighting
from coattail.labels.frequency import inverse_propensity
from coattail.models import begun_with
from coattail.models.linear.linear_params import OvrParams, PltParams

log = logging.getLogger("coattail")

Task = TypeVar("Task")
Result = TypeVar("Result")
PRIMAL = np.float32(0.1)  # eps of a gradient norm relative to that of a dual violation


@dataclass(frozen=True)
class Renumbered:
    """Rows that many problems share, words renumbered for locality.

    Attributes
    ----------
    csr : read-only, with the new word numbers
    words : int32 (d,), the old number of every word
    """

    csr: Rows
    words: NDArray[np.int32]


def by_frequency(X: sp.csr_matrix) -> Renumbered:
    """Frequent words first: their weights share the cache."""
    frequency = np.bincount(X.indices, minlength=X.shape[1])
    words = np.argsort(-frequency, kind="stable").astype(np.int32)
    rank = np.empty(X.shape[1], np.int32)
    rank[words] = np.arange(X.shape[1], dtype=np.int32)
    raw = parts(X)
    return renumbered(Parts(raw.indptr, rank[raw.indices], raw.data), squares_of(X), words)


def squares_of(X: sp.csr_matrix) -> NDArray[np.float32]:
    """|x|^2 + 1 of every row, (n,)."""
    indptr, _, values = constant(*parts(X))
    squares = np.empty(X.shape[0], np.float32)
    sparse.squares(indptr, values, squares)
    return squares


def renumbered(arrays: Parts, squares: NDArray[np.float32], words: NDArray[np.int32]) -> Renumbered:
    return Renumbered(Rows(*constant(*arrays, squares)), words)


@dataclass(frozen=True)
class Solved:
    """Pruned weights of a group: label j has ``words[start[j]:stop[j]]``, in the old numbers."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    words: NDArray[np.int32]
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    stats: NDArray[np.float64]  # (g, 5), as the solvers' ``train`` returns them

    @property
    def limited(self) -> NDArray[np.bool_]:
        """Labels that ended at the limit of rounds or epochs, (g,)."""
        return self.stats[:, 4] > 0


def joined(groups: list[Solved]) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Concatenate the groups: (start, stop, words, weights)."""
    ends = np.cumsum([0] + [len(group.words) for group in groups])[:-1]
    shifted = list(zip(groups, ends, strict=True))
    return (
        np.concatenate([group.start + end for group, end in shifted]),
        np.concatenate([group.stop + end for group, end in shifted]),
        np.concatenate([group.words for group in groups]),
        np.concatenate([group.weights for group in groups]),
    )


def solve(rows: Renumbered, group: Labels, params: OvrParams | PltParams) -> Solved:
    """Train one group of labels on all the rows; releases the GIL while it works."""
    labels, n = Labels(*constant(*group)), len(rows.csr.squares)
    eps, prune = np.float32(params.eps), np.float32(params.prune)
    if params.loss == "logistic":
        W = dense_block(len(rows.words))
        found = logistic.train(rows.csr, labels, eps * PRIMAL, params.max_epochs, prune, W)
    else:
        n_sample = n if n <= 2 * params.negatives else params.negatives
        rng = np.random.default_rng(params.seed)
        sample = np.sort(rng.choice(n, n_sample, replace=False)).astype(np.int32)
        limits = active_set.ActiveSetLimits(
            eps, params.gap, params.max_epochs, params.max_rounds, prune
        )
        blocks = solver_blocks(len(rows.words))
        found = active_set.train(rows.csr, labels, *constant(sample), limits, *blocks)
    words, weights = rows.words[found.words[: found.size]], found.weights[: found.size]
    # A copy: the weights are a view of a buffer that grew by doubling.
    return Solved(found.start, found.stop, words, weights.copy(), found.bias, found.stats)


def dense_block(n_words: int) -> NDArray[np.float32]:
    """Scratch (n_words, LANES) of this thread, reused between groups."""
    return scratch("block", n_words * LANES, np.float32).reshape(-1, LANES)


def solver_blocks(n_words: int) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
    """Scratch of this thread for ``active_set.train``, words padded to a multiple of LANES."""
    padded = -(-n_words // LANES) * LANES
    V = scratch("V", LANES * (padded + 1), np.float32).reshape(LANES, padded + 1)
    return V, scratch("Q", padded * LANES, np.int16).reshape(padded, LANES)


def tell_unconverged(count: int, total: int, remedy: str) -> None:
    """Warn about classifiers that ended at their limit of rounds, if there are any."""
    if count:
        log.warning(
            "%s of %s classifiers ended at their limit of rounds, short of eps; %s",
            f"{count:,}",
            f"{total:,}",
            remedy,
        )


# --- C of every label ----------------------------------------------------------------------------


def texts_per_label(Y: sp.csr_matrix) -> NDArray[np.int64]:
    """(L,)"""
    return np.bincount(Y.indices[Y.data != 0], minlength=Y.shape[1]).astype(np.int64)


def positive_weights(
    params: OvrParams | PltParams, counts: NDArray[np.int64], n_texts: int
) -> NDArray[np.float64]:
    """Weight of the positives of every label or node, from how many texts it has, (g,)."""
    constants = params.propensity_constants
    return weighting.positive_weights(
        params.weighting, counts, n_texts, constants, params.beta, normalise=params.normalise
    )


def positive_targets(
    params: OvrParams | PltParams, counts: NDArray[np.int64], n_texts: int
) -> NDArray[np.float32]:
    """What the logistic loss takes positives for, (g,): 1, or q where it is to be unbiased."""
    if not params.unbiased:
        return np.ones(len(counts), np.float32)
    n = np.maximum(counts, 1)
    return inverse_propensity(n, n_texts, *params.propensity_constants).astype(np.float32)


def tail_mask(params: OvrParams | PltParams, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Labels that are not among the first ``head_labels`` share by count, (L,)."""
    order = np.argsort(-counts, kind="stable")
    mask = np.ones(len(counts), bool)
    mask[order[: int(params.head_labels * len(counts))]] = False
    return mask


# --- interrupted and resumed ---------------------------------------------------------------------


class Partial(Generic[Result]):
    """Finished parts of an unfinished fit, kept in a folder that records its inputs.

    A part is an instance of ``kind``, a dataclass of arrays. Parts of a fit with other params or
    other ``things`` (name -> input) are removed. Without a folder nothing is kept.
    """

    def __init__(
        self, folder: Path | None, kind: type[Result], params: Params, things: Mapping[str, Any]
    ) -> None:
        self.folder, self.kind = folder, kind
        if folder is not None:
            name = f"{getattr(params, 'model', 'fit')} in parts"
            begun_with.claim(name, folder, begun_with.inputs(params, things))

    def load(self, number: int) -> Result | None:
        if self.folder is None:
            return None
        try:
            path = self.folder / f"{number}.npz"
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as z:
                return self.kind(**{name: z[name] for name in z.files})
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None  # not there, or cut off: train the part again

    def save(self, number: int, part: Result) -> None:
        if self.folder is not None:
            with atomic_file(self.folder / f"{number}.npz") as path, open(path, "wb") as file:
                np.savez(file, **vars(part))


def solve_all(
    jobs: Iterable[tuple[int, Task]], work: Callable[[Task], Result], partial: Partial[Result]
) -> Iterator[tuple[int, Result, bool]]:
    """Numbered jobs through ``work``, in order; those already in ``partial`` are only read.

    Yields number, result, and whether this run worked on it.
    """

    def one(job: tuple[int, Task]) -> tuple[int, Result, bool]:
        number, task = job
        if (known := partial.load(number)) is not None:
            return number, known, False
        done = work(task)
        partial.save(number, done)
        return number, done, True

    yield from pool.each(one, jobs)
