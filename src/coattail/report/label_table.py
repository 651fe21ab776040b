"""The table of labels: how often each is true, predicted and hit, compact enough for a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.evaluation import metrics


@dataclass(frozen=True)
class LabelTable:
    """Labels by training frequency, most frequent first.

    Attributes
    ----------
    label, count, true : int (m,)
        Id, texts in train and validation, texts in test.
    hit, predicted : candidate -> int (m,)
        Among the first k of every test text.
    left_out : int
        Labels that are not in the table.
    """

    label: NDArray[np.int64]
    count: NDArray[np.int64]
    true: NDArray[np.int64]
    hit: dict[str, NDArray[np.int64]]
    predicted: dict[str, NDArray[np.int64]]
    left_out: int


def label_table(rankings: Mapping[str, TopK], features: Features, k: int, most: int) -> LabelTable:
    """The first k predictions of every candidate counted label by label."""
    Y = features.Y("test")
    counted = {name: metrics.judge(top, Y).label_counts(k) for name, top in rankings.items()}
    shown = _by_frequency(features.counts, most)
    true = np.bincount(Y.indices[Y.data != 0], minlength=Y.shape[1])
    return LabelTable(
        shown,
        features.counts[shown],
        true[shown],
        {name: counts.hit[shown] for name, counts in counted.items()},
        {name: counts.predicted[shown] for name, counts in counted.items()},
        len(features.counts) - len(shown),
    )


def _by_frequency(counts: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """All labels, most frequent first; of too many, evenly spread ones."""
    order = np.argsort(-counts, kind="stable")
    if len(order) <= most:
        return order
    return order[np.linspace(0, len(order) - 1, most).round().astype(np.int64)]
