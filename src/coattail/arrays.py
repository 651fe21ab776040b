"""The currency (TopK), the CSR gate, and arrays as memory-mapped folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.errors import DataError
from coattail.files import atomic_file

Kind = Literal["probability", "margin", "score"]
DEPTH = 100
"""Labels that pipeline and tagger rank of every text, for what reranks and averages them."""


@dataclass(frozen=True)
class TopK:
    """The best k labels of every text, best first.

    Attributes
    ----------
    labels : int32 (n, k)
        Label ids; -1 where a text has fewer than k predictions (always at the end of the row).
    scores : float32 (n, k)
        Never increasing along a row, equal scores in order of label id; -inf where the label is -1.
    kind : str
        ``probability`` if scores lie in [0, 1] and act as such; ``margin`` if they are distances
        from a hyperplane at 0; ``score`` if they promise the order and nothing else.
    parts : float32 (n, k, m), or None
        Scores of the label in the m rankings that this one averages, each in [0, 1] and 0 where a
        ranking does not list it; a reranker can learn more from them than from their mean.
    probability : float32 (n, k), or None
        How likely each label is, if the scores are no probabilities (a reranking sorts by something
        else): in [0, 1], in any order along the row, 0 where the label is -1.
    """

    labels: NDArray[np.int32]
    scores: NDArray[np.float32]
    kind: Kind = "probability"
    parts: NDArray[np.float32] | None = None
    probability: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise DataError(f"TopK of kind {self.kind!r}; wanted {', '.join(get_args(Kind))}")
        if self.labels.shape != self.scores.shape or self.labels.ndim != 2:
            raise DataError(
                f"TopK wants two (n, k) arrays, got {self.labels.shape} and {self.scores.shape}"
            )
        if self.parts is not None and self.parts.shape[:-1] != self.labels.shape:
            raise DataError(
                f"TopK wants parts of shape {(*self.labels.shape, 'm')}, got {self.parts.shape}"
            )
        if self.probability is None:
            return
        if self.kind == "probability":
            raise DataError("TopK of kind probability: its scores are the probabilities; give one")
        if self.probability.shape != self.labels.shape:
            raise DataError(
                f"TopK wants probabilities of shape {self.labels.shape}, "
                f"got {self.probability.shape}"
            )

    @property
    def n(self) -> int:
        return self.labels.shape[0]

    @property
    def k(self) -> int:
        return self.labels.shape[1]

    @property
    def confidence(self) -> NDArray[np.float32] | None:
        """Stated probability of every label, (n, k), 0 for padding; None if the list has none."""
        if self.kind == "probability":
            return np.where(self.labels < 0, np.float32(0), self.scores)
        return self.probability

    def head(self, k: int) -> TopK:
        """The first k columns, padded when there are fewer."""
        if k <= self.k:
            return self._each(lambda array: array[:, :k])
        more = (0, 0), (0, k - self.k)
        longer = self._each(lambda array: np.pad(array, (*more, (0, 0))[: array.ndim]))
        longer.labels[:, self.k :], longer.scores[:, self.k :] = -1, -np.inf
        return longer

    def rows(self, rows: NDArray | slice) -> TopK:
        """The rankings of some of the texts."""
        return self._each(lambda array: array[rows])

    def copy(self) -> TopK:
        """A ranking with arrays of its own, so that those it was cut from can go."""
        return self._each(np.copy)

    def _each(self, change: Callable[[NDArray], NDArray]) -> TopK:
        """The same change to every array."""
        arrays: dict[str, Any] = {
            name: change(array)
            for name in ("labels", "scores", "parts", "probability")
            if (array := getattr(self, name)) is not None
        }
        return replace(self, **arrays)

    def to_csr(self, n_labels: int) -> sp.csr_matrix:
        """Scores as a sparse (n, n_labels) matrix; a stored zero stays stored."""
        keep = self.labels >= 0
        indptr = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
        out = sp.csr_matrix(
            (self.scores[keep], self.labels[keep], indptr), shape=(self.n, n_labels)
        )
        out.sort_indices()
        return out

    def validate(self, n_labels: int | None = None) -> TopK:
        """Raise DataError unless the promises of the class docstring hold."""
        real = self.labels >= 0
        if np.any(real[:, 1:] & ~real[:, :-1]):
            raise DataError("TopK: padding (-1) stands before a prediction")
        if not np.all(np.isfinite(self.scores[real])):
            raise DataError("TopK: a prediction has a score that is not finite")
        if np.any(self.scores[:, 1:] > self.scores[:, :-1]):
            raise DataError("TopK: scores increase along a row; wanted best first")
        if (p := self.probability) is not None:
            if not np.all((p >= 0) & (p <= 1)):
                raise DataError("TopK: a probability is not in [0, 1]")
            if np.any(p[~real]):
                raise DataError("TopK: padding (-1) has a probability; wanted 0")
        if n_labels is not None and self.labels.size and self.labels.max() >= n_labels:
            raise DataError(f"TopK: label {self.labels.max()} but there are {n_labels} labels")
        return self

    def save(self, path: str | Path) -> None:
        """Write one ``.npz`` atomically."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as temporary, open(temporary, "wb") as file:
            arrays: dict[str, Any] = {"labels": self.labels, "scores": self.scores}
            arrays["kind"] = np.array(self.kind)
            beside = {"parts": self.parts, "probability": self.probability}
            arrays |= {name: array for name, array in beside.items() if array is not None}
            np.savez(file, **arrays)

    @staticmethod
    def load(path: str | Path) -> TopK:
        try:
            with np.load(path, allow_pickle=False) as z:
                kind: Any = str(z["kind"])
                beside = z.get("parts"), z.get("probability")
                return TopK(z["labels"], z["scores"], kind, *beside)
        except FileNotFoundError:
            raise DataError(f"{path} is missing; dvc repro makes it") from None
        except (KeyError, ValueError, OSError, DataError) as error:
            raise DataError(f"{path} is not a saved ranking: {error}") from None


def best_first(
    labels: NDArray,
    scores: NDArray,
    k: int,
    kind: Kind = "probability",
    parts: NDArray | None = None,
) -> TopK:
    """Sort candidate columns into a TopK: best first, ties to the smaller label, -1 last."""
    labels = np.asarray(labels)
    scores = np.where(labels < 0, -np.inf, np.asarray(scores, np.float32)).astype(np.float32)
    order = np.lexsort((np.where(labels < 0, np.iinfo(np.int32).max, labels), -scores), axis=1)
    order = order[:, :k]
    top = TopK(
        np.take_along_axis(labels, order, 1).astype(np.int32),
        np.take_along_axis(scores, order, 1),
        kind,
        None if parts is None else np.take_along_axis(parts, order[..., None], 1),
    )
    return top.head(k)


def topk_of_csr(S: sp.csr_matrix, k: int, kind: Kind = "probability") -> TopK:
    """The k best *stored* entries of every row."""
    S = sp.csr_matrix(S)
    rows = np.repeat(np.arange(S.shape[0]), np.diff(S.indptr))
    order = np.lexsort((S.indices, -S.data, rows))
    rank = np.arange(len(rows)) - np.repeat(S.indptr[:-1], np.diff(S.indptr))
    keep = rank < k
    labels = np.full((S.shape[0], k), -1, np.int32)
    scores = np.full((S.shape[0], k), -np.inf, np.float32)
    labels[rows[keep], rank[keep]] = S.indices[order][keep]
    scores[rows[keep], rank[keep]] = S.data[order][keep]
    return TopK(labels, scores, kind)


def hinge_probability(margins: NDArray) -> NDArray[Any]:
    """``exp(-max(0, 1 - s)^2)``: what a margin of a squared hinge says, in the floats it came in.

    Flat above 1; of labels there the order is lost.
    """
    return np.exp(-np.square(np.maximum(0, 1 - np.asarray(margins))))


# --- sparse matrices -----------------------------------------------------------------------------


class Parts(NamedTuple):
    """What kernels take: indptr int64, indices int32, data float32."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: NDArray[np.float32]


def parts(M: sp.csr_matrix) -> Parts:
    """The arrays of a canonical CSR matrix in the dtypes of our kernels (copies only if needed)."""
    return Parts(
        np.ascontiguousarray(M.indptr, np.int64),
        np.ascontiguousarray(M.indices, np.int32),
        np.ascontiguousarray(M.data, np.float32),
    )


def as_csr(M: Any, name: str = "matrix") -> sp.csr_matrix:
    """Gate for matrices from outside: CSR, float32, sorted, no duplicates, finite.

    The input is never changed; a canonical matrix passes through without a copy.
    """
    out = sp.csr_matrix(M)
    if out.dtype != np.float32:
        out = out.astype(np.float32)
    if not out.has_canonical_format:
        out = out.copy() if out is M or out.data is getattr(M, "data", None) else out
        out.sum_duplicates()
    if not np.all(np.isfinite(out.data)):
        row = int(np.searchsorted(out.indptr, np.flatnonzero(~np.isfinite(out.data))[0], "right"))
        raise DataError(f"{name}: row {row - 1} holds a value that is not finite")
    return out


def unit_rows(M: sp.csr_matrix) -> sp.csr_matrix:
    """A float32 copy with rows of Euclidean length 1; a row of zeros stays as it is."""
    data = np.empty(len(M.data), np.float32)
    # Some rows at a time: temporary arrays in float64 would be larger than the matrix.
    cuts = np.searchsorted(M.indptr, np.arange(0, len(M.data), 2**20))
    for begin, end in pairwise([*np.unique(cuts), M.shape[0]]):
        part = slice(M.indptr[begin], M.indptr[end])
        rows = np.repeat(np.arange(end - begin), np.diff(M.indptr[begin : end + 1]))
        values = M.data[part].astype(np.float64)
        length = np.sqrt(np.bincount(rows, np.square(values), minlength=end - begin))
        length[length == 0] = 1.0
        data[part] = values / length[rows]
    return sp.csr_matrix((data, M.indices.copy(), M.indptr.copy()), shape=M.shape)


class Ragged(NamedTuple):
    """Token ids of all texts in one array; text i is ``values[indptr[i]:indptr[i + 1]]``."""

    indptr: NDArray[np.int64]
    values: NDArray[np.int32]

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.indptr)

    def row(self, i: int) -> NDArray[np.int32]:
        return self.values[self.indptr[i] : self.indptr[i + 1]]

    def take(self, rows: NDArray) -> Ragged:
        """A copy of some rows, in the order given."""
        rows = np.asarray(rows, np.int64)
        lengths = self.lengths[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        source = np.repeat(self.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return Ragged(indptr, np.asarray(self.values[source], np.int32))


# --- folders -------------------------------------------------------------------------------------


def save_csr(folder: str | Path, M: sp.csr_matrix) -> None:
    """Write ``indptr``, ``indices``, ``data`` as ``.npy`` and the shape as JSON into a folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    p = parts(M)
    np.save(folder / "indptr.npy", p.indptr)
    np.save(folder / "indices.npy", p.indices)
    np.save(folder / "data.npy", p.data)
    (folder / "shape.json").write_text(json.dumps([int(s) for s in M.shape]) + "\n")


def load_csr(folder: str | Path, mmap: bool = True) -> sp.csr_matrix:
    """Read a folder of save_csr; indices and values stay memory-mapped unless ``mmap`` is off."""
    folder = Path(folder)
    mode: Literal["r"] | None = "r" if mmap else None
    try:
        shape = tuple(json.loads((folder / "shape.json").read_text()))
        arrays = [
            np.load(folder / f"{name}.npy", mmap_mode=mode, allow_pickle=False)
            for name in ("data", "indices", "indptr")
        ]
    except FileNotFoundError as error:
        raise DataError(f"{folder} is not a saved matrix: {error.filename} is missing") from None
    if len(arrays[2]) != shape[0] + 1 or arrays[2][-1] != len(arrays[1]):
        raise DataError(f"{folder}: indptr does not fit shape {shape}; run dvc repro again")
    M = sp.csr_matrix(tuple(arrays), shape=shape, copy=False)
    M.has_canonical_format = True
    return M


def save_ragged(folder: str | Path, tokens: Ragged) -> None:
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "indptr.npy", np.asarray(tokens.indptr, np.int64))
    np.save(folder / "values.npy", np.asarray(tokens.values, np.int32))


def load_ragged(folder: str | Path) -> Ragged:
    folder = Path(folder)
    try:
        return Ragged(
            np.load(folder / "indptr.npy", mmap_mode="r", allow_pickle=False),
            np.load(folder / "values.npy", mmap_mode="r", allow_pickle=False),
        )
    except FileNotFoundError as error:
        raise DataError(f"{folder} holds no tokens: {error.filename} is missing") from None
