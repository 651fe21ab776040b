"""What an evaluation says in words: who is best at what, and who cannot be told apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

from coattail.evaluation.scoring import Evaluation, Row


@dataclass(frozen=True)
class Statement:
    """The best candidate at one thing, and those a paired interval does not tell from it."""

    question: str
    metric: str
    winner: str
    value: float
    low: float
    high: float
    level: tuple[str, ...]


def questions(k: int) -> dict[str, str]:
    """Metric -> what it decides."""
    return {
        f"psp_at_{k}": "Best with rare labels weighted up",
        f"p_at_{k}": "Best overall",
        f"head_recall_at_{k}": "Best on the head",
        f"torso_recall_at_{k}": "Best on the torso",
        f"tail_recall_at_{k}": "Best on the tail",
    }


def findings(evaluation: Evaluation) -> list[Statement]:
    """One per question, in the order of `questions`; those nobody can answer are left out."""
    summary, found = evaluation.summary, []
    intervals = {(r["metric"], r["candidate"]): r for r in evaluation.tables["intervals"]}
    for metric, question in questions(max(summary["ks"])).items():
        winner = summary["best"].get(metric)
        row = intervals.get((metric, winner))
        if row is None or math.isnan(row["value"]):
            continue
        level = tuple(
            one["candidate"]
            for one in comparisons(evaluation, metric, "best")
            if one["candidate"] != winner and not one["real"]
        )
        values = (float(row["value"]), float(row["low"]), float(row["high"]))
        found.append(Statement(question, metric, winner, *values, level))
    return found


def comparisons(evaluation: Evaluation, metric: str, against: str) -> list[Row]:
    """Rows of one metric against the base or the best."""
    rows = evaluation.tables["comparisons"]
    return [row for row in rows if row["metric"] == metric and row["against"] == against]


def verdicts(evaluation: Evaluation, metric: str) -> dict[str, list[str]]:
    """Candidates that are better, level or worse than the base beyond the interval."""
    result: dict[str, list[str]] = {"better": [], "level": [], "worse": []}
    for row in comparisons(evaluation, metric, "base"):
        if row["candidate"] == evaluation.summary["base"]:
            continue
        verdict = "level" if not row["real"] else "better" if row["difference"] > 0 else "worse"
        result[verdict].append(row["candidate"])
    return result
