"""Pictures of the tail: how long classifiers' weights are, and which rare labels are found."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.data.dataset_plots import COLOURS, INK, figure
from coattail.errors import ModelError
from coattail.evaluation import metrics
from coattail.models.linear.linear_models import Blocks, load
from coattail.models.linear.ovr import Ovr

Floats = NDArray[np.float64]
SHOWN = 800  # points of a cloud; more only make the file larger


class Bins(NamedTuple):
    """Labels grouped by their number of texts, each bin about twice as wide as the last."""

    texts: Floats  # geometric middle of a bin
    median: Floats
    low: Floats  # 25th percentile
    high: Floats  # 75th percentile
    labels: NDArray[np.int64]


def weight_norms(folder: str | Path) -> Floats:
    """|w| of every label of a saved one-vs-rest model, also of one in blocks (Taug).

    NaN for a label without a training text. The bias is no part of w.
    """
    model = load(folder)
    if isinstance(model, Blocks):
        norms = np.full(model.n_labels_, np.nan)
        for labels, part in zip(model.labels_, model.models_, strict=True):
            norms[labels] = _norms(part, folder)
        return norms
    return _norms(model, folder)


def _norms(model: object, folder: str | Path) -> Floats:
    if not isinstance(model, Ovr):
        raise ModelError(
            f"{folder} is no one-vs-rest model, so labels have no weights of their own"
        )
    squares = np.asarray(sp.csr_matrix(model.W_).power(2).sum(axis=0)).ravel()
    return np.where(np.isfinite(model.bias_), np.sqrt(squares), np.nan)


def by_frequency(counts: NDArray, values: Floats) -> Bins:
    """Quartiles of ``values`` over labels with 1, 2-3, 4-7, 8-15, ... texts; NaN left out."""
    keep = (counts > 0) & np.isfinite(values)
    octave = np.floor(np.log2(counts[keep])).astype(np.int64)
    rows = []
    for o in np.unique(octave):
        group = values[keep][octave == o]
        middle = np.sqrt(2.0**o * (2.0 ** (o + 1) - 1))
        rows.append((middle, *np.percentile(group, [50, 25, 75]), len(group)))
    texts, median, low, high, labels = np.array(rows).reshape(-1, 5).T
    return Bins(texts, median, low, high, labels.astype(np.int64))


def draw_norms(path: Path, title: str, counts: NDArray, norms: dict[str, Floats]) -> None:
    """Weight norm against training texts of the label: a cloud, and medians with quartiles."""
    with figure(path) as axes:
        for colour, (name, values) in zip(COLOURS, norms.items(), strict=False):
            keep = np.flatnonzero((counts > 0) & np.isfinite(values))
            step = max(1, -(-len(keep) // SHOWN))
            dots = keep[np.argsort(-counts[keep], kind="stable")][::step]
            axes.plot(counts[dots], values[dots], ".", ms=2, color=colour, alpha=0.25)
            bins = by_frequency(counts, values)
            axes.fill_between(bins.texts, bins.low, bins.high, color=colour, alpha=0.15, lw=0)
            axes.plot(bins.texts, bins.median, "o-", ms=4, lw=1.5, color=colour, label=name)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("training texts of the label")
        axes.set_ylabel("|w|: median and quartiles")
        axes.set_title(title, loc="left", color=INK)
        axes.legend(frameon=False)


def label_f1(topk: TopK, Y: sp.csr_matrix, labels: NDArray, cut: int | float) -> Floats:
    """F1 of each of some labels, in percent: of the first ``cut`` ranks, or of scores above it.

    NaN for a label that no text has; a label that is never given has 0.
    """
    judged = metrics.judge(topk, Y)
    counts = judged.label_counts(cut) if isinstance(cut, int) else judged.label_counts_above(cut)
    found = counts.of(labels)
    f1 = 200 * found.hit / np.maximum(found.predicted + found.true, 1)
    return np.where(found.true > 0, f1, np.nan)


def draw_label_f1(path: Path, title: str, counts: NDArray, f1: dict[str, Floats]) -> None:
    """F1 of single labels, most frequent first, one line per model; labels without F1 left out."""
    known = np.all([np.isfinite(values) for values in f1.values()], axis=0)
    order = np.flatnonzero(known)[np.argsort(-counts[known], kind="stable")]
    width = 0.8 / max(len(f1), 1)
    with figure(path) as axes:
        for number, (colour, (name, values)) in enumerate(zip(COLOURS, f1.items(), strict=False)):
            left = np.arange(len(order)) + number * width - 0.4
            mean = float(values[order].mean()) if len(order) else 0.0
            found = int((values[order] > 0).sum())
            text = f"{name}: mean {mean:.1f}, {found} of {len(order)} labels found"
            axes.bar(left, values[order], width, align="edge", color=colour, label=text)
        axes.set_ylim(0, 100)
        axes.set_xlabel("tail labels with a test text, most frequent first")
        axes.set_ylabel("F1 of the label")
        axes.set_title(title, loc="left", color=INK)
        axes.legend(frameon=False)
