"""The table a search ends with: its trials, best first."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

from coattail.evaluation import leaderboard
from coattail.experiments.tune import SearchResult

SHOWN = 15  # trials; MLflow has them all


def table(outcome: SearchResult, plain: bool = False) -> Table:
    """One row per trial: those that came to an end by their value, then the others."""
    metric = outcome.plan.metric
    rows = sorted(outcome.trials, key=lambda t: (t[1] != "complete", -(t[2] or 0.0), t[0]))
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption_justify="left")
    made.add_column("trial", justify="right")
    made.add_column(f"valid {metric}", justify="right")
    for one in outcome.plan.space:
        made.add_column(one.name, justify="right")
    for number, state, value, values in rows[:SHOWN]:
        shown = f"{value:.2f}" if state == "complete" and value is not None else state
        best = number == outcome.number
        mark = "*" if plain and best else ""
        cells = [str(number), f"{mark}{shown}", *(_short(v) for v in values.values())]
        made.add_row(*cells, style="bold" if best else "")
    left = f" {len(rows) - SHOWN} more are in MLflow." if len(rows) > SHOWN else ""
    made.caption = f"Percent, validation texts; test was not looked at.{left}"
    return made


def show(outcome: SearchResult) -> None:
    """Print the table on the terminal."""
    leaderboard.print_table(lambda plain: table(outcome, plain))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
