"""Test texts worth a look: where candidates disagree, find rare labels, or all miss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.evaluation import metrics
from coattail.labels.frequency import TAIL

KINDS = {
    "tail": "A rare label that some find and others miss",
    "disagree": "Candidates disagree",
    "missed": "Everyone misses",
    "right": "Everyone is right",
}


@dataclass(frozen=True)
class Prediction:
    """One label a candidate gave, and the words that made it do so (if it can tell)."""

    label: int
    score: float
    hit: bool
    probability: float | None = None
    words: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Example:
    """A text with its true labels and what every candidate said."""

    kind: str
    row: int
    name: str  # the text's id in the dataset
    text: str
    cut: bool  # whether the text goes on
    true: tuple[int, ...]
    said: dict[str, list[Prediction]]


def choose(
    rankings: Mapping[str, TopK], Y: sp.csr_matrix, bands: NDArray[np.int8], k: int, n: int
) -> list[tuple[str, int]]:
    """``n`` pairs of kind and row, the kinds in turn; the same input gives the same rows."""
    hits = np.zeros((len(rankings), Y.shape[0]), np.int64)  # hits within the first k
    tail = np.zeros_like(hits)  # those of them that are tail labels
    for c, top in enumerate(rankings.values()):
        found = metrics.judge(top.head(k), Y).hits
        hits[c] = np.bincount(found.row, minlength=Y.shape[0])
        tail[c] = np.bincount(found.row[bands[found.label] == TAIL], minlength=Y.shape[0])
    positives = np.diff(Y.indptr)
    several = positives >= 2  # a text with one label tells little
    spread = hits.max(axis=0) - hits.min(axis=0)
    # Zero means: not an example of this kind.
    worth = {
        "tail": (tail.max(axis=0) - tail.min(axis=0)) * 1000 + tail.max(axis=0) * 10 + spread,
        "disagree": spread * 1000 + hits.std(axis=0),
        "missed": (hits.max(axis=0) == 0) * positives,
        "right": several * (hits.min(axis=0) == np.minimum(positives, k)) * positives,
    }
    worth["tail"] = worth["tail"] * (tail.max(axis=0) > tail.min(axis=0))
    queues = {kind: list(_descending(values)) for kind, values in worth.items()}
    return _in_turn(queues, n)


def _descending(values: NDArray) -> NDArray[np.int64]:
    """Rows with a positive value, the largest first, equal ones in order."""
    order = np.argsort(-values, kind="stable")
    return order[values[order] > 0]


def _in_turn(queues: dict[str, list[int]], n: int) -> list[tuple[str, int]]:
    chosen: list[tuple[str, int]] = []
    taken: set[int] = set()
    while len(chosen) < n and any(queues.values()):
        for kind, queue in queues.items():
            while queue and queue[0] in taken:
                queue.pop(0)
            if queue and len(chosen) < n:
                taken.add(queue[0])
                chosen.append((kind, int(queue.pop(0))))
    return sorted(chosen, key=lambda one: list(queues).index(one[0]))


def said(top: TopK, row: int, k: int, true: tuple[int, ...]) -> list[Prediction]:
    """The first k labels of a row."""
    shown = top.rows(slice(row, row + 1)).head(min(k, top.k))
    likely = [None] * shown.k if shown.confidence is None else shown.confidence[0].tolist()
    columns = zip(shown.labels[0].tolist(), shown.scores[0].tolist(), likely, strict=True)
    return [Prediction(label, s, label in true, p) for label, s, p in columns if label >= 0]


def read_texts(features: Features, rows: list[int]) -> dict[int, tuple[str, str]]:
    """Id and text of some test texts; the heaviest tf-idf words where the dataset has no text."""
    if not features.has_texts("test"):
        return {row: (str(row), _heaviest_words(features, row)) for row in rows}
    return features.some_documents("test", rows)


def _heaviest_words(features: Features, row: int) -> str:
    x = features.X("test")[row]
    order = np.lexsort((x.indices, -x.data))[:60]
    return " ".join(features.words[i] for i in x.indices[order])
