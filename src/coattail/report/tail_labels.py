"""Which rare labels a candidate finds: the F1 of every single one, the best first."""

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

POINTS = 200  # of a line; a screen shows no more


@dataclass(frozen=True)
class TailLabels:
    """F1 of the tail labels that some test text has.

    Attributes
    ----------
    mean : candidate -> percent
    found : candidate -> labels with an F1 above 0
    line : candidate -> (rank, F1) of its labels, its best first, thinned
    """

    labels: int
    mean: dict[str, float]
    found: dict[str, int]
    line: dict[str, list[tuple[int, float]]]


def tail_labels(rankings: Mapping[str, TopK], features: Features, k: int) -> TailLabels:
    """Of the first k answers to the test texts."""
    Y, tail = features.Y("test"), np.flatnonzero(features.bands == TAIL)
    f1 = {name: _known(label_f1(top, Y, tail, k)) for name, top in rankings.items()}
    n = max((len(values) for values in f1.values()), default=0)
    if not n:
        return TailLabels(0, {}, {}, {})
    shown = np.unique(np.linspace(0, n - 1, min(n, POINTS)).round().astype(np.int64))
    return TailLabels(
        n,
        {name: float(values.mean()) for name, values in f1.items()},
        {name: int((values > 0).sum()) for name, values in f1.items()},
        {name: [(int(i) + 1, float(values[i])) for i in shown] for name, values in f1.items()},
    )


def label_f1(
    topk: TopK, Y: sp.csr_matrix, labels: NDArray, cut: int | float
) -> NDArray[np.float64]:
    """F1 of each of some labels, in percent: of the first ``cut`` ranks, or of scores above it.

    NaN for a label that no text has; a label that is never given has 0.
    """
    judged = metrics.judge(topk, Y)
    counts = judged.label_counts(cut) if isinstance(cut, int) else judged.label_counts_above(cut)
    found = counts.of(labels)
    f1 = 200 * found.hit / np.maximum(found.predicted + found.true, 1)
    return np.where(found.true > 0, f1, np.nan)


def _known(f1: NDArray[np.float64]) -> NDArray[np.float64]:
    """Those of labels that some text has, the best first."""
    return -np.sort(-f1[np.isfinite(f1)])
