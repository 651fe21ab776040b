"""The numbers behind the page's pictures and tables, as compact JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from coattail.evaluation.leaderboard import columns
from coattail.evaluation.scoring import Row
from coattail.evaluation.statements import title
from coattail.labels.frequency import BANDS
from coattail.report.collect import CURVE, Content, training_curves


def numbers(content: Content) -> dict[str, Any]:
    """What the scripts of the page read; candidates are named by their position."""
    summary, tables = content.evaluation.summary, content.evaluation.tables
    names, k = list(content.candidates), content.k
    return {
        "candidates": [
            {"name": name, "family": one.family} for name, one in content.candidates.items()
        ],
        "base": names.index(summary["base"]),
        "k": k,
        "metrics": _metrics(content, names),
        "chosen": f"psp_at_{k}",
        "bands": _groups(tables["bands"], "band", BANDS, names, k),
        "bins": _groups(tables["bins"], "bin", [one["name"] for one in summary["bins"]], names, k),
        "front": [
            [row[f"p_at_{k}"], row[f"psp_at_{k}"], int(row["on_front"])]
            for row in _in_order(tables["front"], names)
        ],
        "calibration": _calibration(tables["calibration"], content),
        "norms": _norms(content.norms, names),
        "tail": _tail(content),
        "training": _training(content, names),
        "curve": content.curve,
        "labels": _labels(content, names),
    }


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element: no ``<``, no ``&``, no line separators."""
    text = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def plain(value: Any) -> Any:
    """Two decimals, NaN as null, whole numbers without a point, all the way down."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        rounded = round(float(value), 2)
        return int(rounded) if rounded == int(rounded) else rounded
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _in_order(rows: list[Row], names: Sequence[str]) -> list[Row]:
    by_name = {row["candidate"]: row for row in rows}
    return [by_name[name] for name in names]


def _metrics(content: Content, names: list[str]) -> dict[str, Any]:
    """Metric -> its title, values with intervals, and differences from the base and the best."""
    tables, found = content.evaluation.tables, {}
    shown = columns(content.evaluation.summary["ks"])
    compared = dict.fromkeys(row["metric"] for row in tables["comparisons"])
    # The leaderboard's columns first, in its order.
    for metric in [*(m for m in shown if m in compared), *(m for m in compared if m not in shown)]:
        intervals = [row for row in tables["intervals"] if row["metric"] == metric]
        entry: dict[str, Any] = {
            "title": title(metric),
            "values": [[r["value"], r["low"], r["high"]] for r in _in_order(intervals, names)],
        }
        for against in ("base", "best"):
            rows = [
                row
                for row in tables["comparisons"]
                if row["metric"] == metric and row["against"] == against
            ]
            ordered = _in_order(rows, names)
            entry[against] = {
                "other": names.index(ordered[0]["other"]),
                "rows": [
                    [r["difference"], r["low"], r["high"], int(r["real"]), *_bouts(r)]
                    for r in ordered
                ],
            }
        found[metric] = entry
    return found


def _bouts(row: Row) -> list[int]:
    return [row[name] for name in ("wins", "ties", "losses")] if "wins" in row else []


def _groups(
    rows: list[Row], column: str, groups: Sequence[str], names: list[str], k: int
) -> dict[str, Any]:
    """Measure -> candidate by group."""
    values = {(row["candidate"], row[column]): row for row in rows}
    measures = [f"{m}_at_{k}" for m in ("recall", "coverage", "macro_f1", "psp")]
    return {
        "names": list(groups),
        "values": {
            measure: [
                [values.get((name, group), {}).get(measure, math.nan) for group in groups]
                for name in names
            ]
            for measure in measures
        },
    }


def _calibration(rows: list[Row], content: Content) -> dict[str, Any]:
    """Position of a candidate -> points (probability, right, predictions) and the mean gap."""
    found = {}
    for position, name in enumerate(content.candidates):
        own = [row for row in rows if row["candidate"] == name]
        total = sum(row["predictions"] for row in own)
        if total:
            gaps = [row["predictions"] * abs(row["probability"] - row["right"]) for row in own]
            points = [[row["probability"], row["right"], row["predictions"]] for row in own]
            found[str(position)] = {"points": points, "gap": sum(gaps) / total}
    return found


def _norms(rows: list[Row], names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in rows:
        points = found.setdefault(str(names.index(row["candidate"])), [])
        points.append([row["bin"], row["relative"], row["norm"], row["labels"]])
    return found


def _tail(content: Content) -> dict[str, Any]:
    """Position of a candidate -> its line over tail labels, mean F1, and how many it finds."""
    tail = content.tail
    return {
        str(position): {
            "points": tail.line[name],
            "mean": tail.mean[name],
            "found": [tail.found[name], tail.labels],
        }
        for position, name in enumerate(content.candidates)
        if tail.labels
    }


def _training(content: Content, names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in training_curves(content):
        points = found.setdefault(str(names.index(row["candidate"])), [])
        points.append([row["epoch"], row[CURVE]])
    return found


def _labels(content: Content, names: list[str]) -> dict[str, Any]:
    table = content.labels
    ids = table.label.tolist()
    return {
        "name": [content.names[label] for label in ids],
        "band": [BANDS.index(content.bands[label]) for label in ids],
        "count": table.count.tolist(),
        "true": table.true.tolist(),
        "hit": [table.hit[name].tolist() for name in names],
        "predicted": [table.predicted[name].tolist() for name in names],
    }
