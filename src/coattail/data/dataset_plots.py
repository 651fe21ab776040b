"""Pictures of a dataset, and the numbers behind them as CSV for `dvc plots`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coattail.data.drawing import BAR, COLOURS, INK, picture
from coattail.files import atomic_file
from coattail.labels.frequency import BANDS

POINTS = 1000  # of a curve; more cannot be seen, and a CSV of 670,000 labels helps nobody


def draw(
    folder: Path,
    name: str,
    counts: NDArray[np.int64],
    bands: NDArray[np.int8],
    per_text: dict[str, NDArray[np.int64]],
) -> None:
    """``label_frequency``, ``labels_per_text`` and ``words_per_text``, each as .png and .csv.

    Parameters
    ----------
    folder : existing or not
    name : of the dataset, for the titles
    counts, bands : (L,) texts and band of each label
    per_text : (n,) arrays named ``labels_per_text`` and ``words_per_text``
    """
    folder = Path(folder)
    _label_frequency(folder, name, counts, bands)
    for quantity, values in per_text.items():
        _histogram(folder, name, quantity, values)


def _label_frequency(
    folder: Path, name: str, counts: NDArray[np.int64], bands: NDArray[np.int8]
) -> None:
    order = np.lexsort((np.arange(len(counts)), bands, -counts))
    rank, count, band = np.arange(1, len(counts) + 1), counts[order], bands[order]
    shown = _thinned(len(rank))
    rows = zip(rank[shown].tolist(), count[shown].tolist(), band[shown].tolist(), strict=True)
    _csv(folder / "label_frequency.csv", "rank,count,band", ((r, c, BANDS[b]) for r, c, b in rows))
    total = max(int(counts.sum()), 1)
    with picture(folder / "label_frequency.png") as axes:
        for number, label in enumerate(BANDS):
            members = band == number
            if not members.any():
                continue
            drawn = shown[members[shown] & (count[shown] > 0)]
            text = f"{label}: {members.sum():,} labels, {100 * count[members].sum() / total:.0f} %"
            axes.plot(rank[drawn], count[drawn], "o", ms=3.5, color=COLOURS[number], label=text)
        axes.set_xscale("log")
        axes.set_yscale("log")
        unseen = int((counts == 0).sum())
        note = f" ({unseen:,} labels without a text not drawn)" if unseen else ""
        axes.set_xlabel(f"label, by frequency{note}")
        axes.set_ylabel("texts in train and validation")
        axes.set_title(f"{name}: how frequent the labels are", loc="left", color=INK)
        axes.legend(frameon=False, title="share of all positives", alignment="left")


def _thinned(n: int) -> NDArray[np.int64]:
    """At most about POINTS positions of 0..n-1, evenly spread on a log axis."""
    if n <= POINTS:
        return np.arange(n)
    return np.unique(np.geomspace(1, n, POINTS).round().astype(np.int64)) - 1


def _histogram(folder: Path, name: str, quantity: str, values: NDArray[np.int64]) -> None:
    # Text lengths have a long tail: the last bar holds everything beyond the 99th percentile.
    last = max(int(np.quantile(values, 0.99)), 1)
    width = max(1, -(-last // 50))
    edges = np.arange(0, last + 2 * width, width)
    heights = np.bincount(np.minimum(values // width, len(edges) - 2), minlength=len(edges) - 1)
    rows = zip(edges[:-1].tolist(), heights.tolist(), strict=True)
    _csv(folder / f"{quantity}.csv", f"{quantity},texts", rows)
    words = quantity.replace("_", " ")
    with picture(folder / f"{quantity}.png") as axes:
        left = edges[:-1] - 0.45 if width == 1 else edges[:-1]  # a whole number sits on its tick
        axes.bar(left, heights, width=0.9 * width, align="edge", color=BAR)
        mean, median = float(values.mean()), float(np.median(values))
        axes.axvline(mean, color=COLOURS[2], lw=1.5, label=f"mean {mean:,.1f}")
        axes.axvline(median, color=INK, lw=1.5, ls="--", label=f"median {median:,.0f}")
        beyond = f"; the last bar holds all above {edges[-2] - 1:,}" if values.max() > last else ""
        axes.set_xlabel(f"{words} (at most {values.max():,}{beyond})")
        axes.set_ylabel("texts")
        axes.set_title(f"{name}: {words}", loc="left", color=INK)
        axes.legend(frameon=False)


def _csv(path: Path, header: str, rows: Iterator[tuple[Any, ...]]) -> None:
    lines = [header, *(",".join(str(cell) for cell in row) for row in rows)]
    with atomic_file(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
