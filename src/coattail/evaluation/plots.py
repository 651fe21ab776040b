"""Pictures of an evaluation for MLflow: the front, head and tail side by side, one candidate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from coattail.data import drawing
from coattail.data.drawing import INK, OF_BAND, OWN, QUIET
from coattail.evaluation.scoring import Evaluation, Row
from coattail.labels.frequency import BANDS


def of_all(evaluation: Evaluation) -> dict[str, Any]:
    """File name -> figure, for the run that holds all candidates."""
    return {"front.png": front(evaluation), "bands.png": bands(evaluation)}


def front(evaluation: Evaluation) -> Any:
    """P against PSP; candidates that none beats in both are joined."""
    k = max(evaluation.summary["ks"])
    rows = [row for row in evaluation.tables["front"] if not _gap(row, f"p_at_{k}", f"psp_at_{k}")]
    figure, (axes,) = drawing.figure(7.6, 5.0)
    best = sorted((row for row in rows if row["on_front"]), key=lambda row: row[f"p_at_{k}"])
    x, y = ([row[f"{m}_at_{k}"] for row in best] for m in ("p", "psp"))
    axes.plot(x, y, "-", color=OWN, lw=1, alpha=0.5, zorder=1)
    for row in rows:
        colour = OWN if row["on_front"] else QUIET
        axes.plot(row[f"p_at_{k}"], row[f"psp_at_{k}"], "o", color=colour, ms=6)
    _name(axes, [(row[f"p_at_{k}"], row[f"psp_at_{k}"], row["candidate"]) for row in rows])
    axes.set_xlabel(f"P@{k}")
    axes.set_ylabel(f"PSP@{k}")
    axes.set_title("Common labels against rare ones", loc="left", color=INK)
    return figure


def _name(axes: Any, points: list[tuple[float, float, str]]) -> None:
    """Write names beside points; points close in height get their names apart."""
    if not points:
        return
    axes.margins(x=0.28, y=0.12)
    low, high = axes.get_ylim()
    gap = 0.045 * (high - low)
    middle = sum(axes.get_xlim()) / 2
    for side in (-1, 1):
        heights: list[float] = []
        on_side = [p for p in points if (p[0] > middle) == (side < 0)]
        for x, y, name in sorted(on_side, key=lambda p: p[1]):
            height = max(y, heights[-1] + gap) if heights else y
            heights.append(height)
            axes.annotate(
                name,
                (x, y),
                (x + side * 0.02 * (axes.get_xlim()[1] - axes.get_xlim()[0]), height),
                ha="right" if side < 0 else "left",
                va="center",
                fontsize=8,
                color=INK,
            )


def bands(evaluation: Evaluation) -> Any:
    """Recall of head, torso and tail labels, a group of bars per candidate."""
    k = max(evaluation.summary["ks"])
    names = sorted(evaluation.metrics, key=lambda n: _high(evaluation.metrics[n], f"psp_at_{k}"))
    figure, (axes,) = drawing.figure(7.6, 1.4 + 0.42 * len(names))
    for order, band in enumerate(BANDS):
        values = [evaluation.metrics[name][f"{band}_recall_at_{k}"] for name in names]
        places = [i + 0.27 * (1 - order) for i in range(len(names))]
        axes.barh(places, _drawn(values), height=0.25, color=OF_BAND[band], label=band)
        for place, value in zip(places, values, strict=True):
            if not math.isnan(value):
                axes.text(value + 0.5, place, f"{value:.1f}", va="center", fontsize=6, color=INK)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xlabel(f"recall@{k} of the band's labels")
    axes.margins(x=0.08)
    axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), fontsize=8)
    return figure


def of_candidate(evaluation: Evaluation, name: str) -> dict[str, Any]:
    """File name -> figure, for the run of one candidate: beside the base, where it is another."""
    base = evaluation.summary["base"]
    k = max(evaluation.summary["ks"])
    pair = [(name, OWN), *([(base, QUIET)] if base != name else [])]
    calibrated = _rows(evaluation.tables["calibration"], name)
    figure, panels = drawing.figure(11.0 if calibrated else 7.6, 3.6, 3 if calibrated else 2)
    _recall_of_bands(panels[0], evaluation, pair, k)
    _recall_of_bins(panels[1], evaluation, pair, k)
    if calibrated:
        _calibration(panels[2], calibrated)
    return {"candidate.png": figure}


def _recall_of_bands(axes: Any, evaluation: Evaluation, pair: list[Any], k: int) -> None:
    width = 0.8 / len(pair)
    for order, (name, colour) in enumerate(pair):
        values = [evaluation.metrics[name][f"{band}_recall_at_{k}"] for band in BANDS]
        places = [i + (order - (len(pair) - 1) / 2) * width for i in range(len(BANDS))]
        axes.bar(places, _drawn(values), width=0.95 * width, color=colour, label=name)
        for place, value in zip(places, values, strict=True):
            if not math.isnan(value):
                axes.text(place, value + 1, f"{value:.1f}", ha="center", fontsize=7, color=INK)
    axes.set_xticks(range(len(BANDS)), BANDS)
    axes.margins(y=0.12)
    axes.set_title(f"recall@{k} by band", loc="left", color=INK, fontsize=10)


def _recall_of_bins(axes: Any, evaluation: Evaluation, pair: list[Any], k: int) -> None:
    for name, colour in pair:
        rows = [r for r in _rows(evaluation.tables["bins"], name) if not _gap(r, f"recall_at_{k}")]
        x, y = [r["bin"] for r in rows], [r[f"recall_at_{k}"] for r in rows]
        axes.plot(x, y, "o-", color=colour, ms=4, lw=1.5, label=name)
    axes.tick_params(axis="x", labelrotation=45, labelsize=7)
    axes.set_title(f"recall@{k} by texts of the label", loc="left", color=INK, fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def _calibration(axes: Any, rows: Sequence[Row]) -> None:
    axes.plot([0, 100], [0, 100], "--", color=QUIET, lw=1)
    x, y = [r["probability"] for r in rows], [r["right"] for r in rows]
    axes.plot(x, y, "o-", color=OWN, ms=4, lw=1.5)
    axes.set_xlabel("probability, percent")
    axes.set_ylabel("right, percent")
    axes.set_title("calibration", loc="left", color=INK, fontsize=10)


def _rows(rows: Sequence[Row], candidate: str) -> list[Row]:
    return [row for row in rows if row["candidate"] == candidate]


def _gap(row: Row, *names: str) -> bool:
    return any(math.isnan(row[name]) for name in names)


def _drawn(values: Sequence[float]) -> list[float]:
    return [0.0 if math.isnan(value) else value for value in values]


def _high(values: dict[str, float], metric: str) -> float:
    return -math.inf if math.isnan(values[metric]) else values[metric]
