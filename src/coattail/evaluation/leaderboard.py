"""The table a run ends with: one row per candidate, head and tail beside the whole."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coattail.config import suggestion
from coattail.errors import ConfigError
from coattail.evaluation.scoring import Evaluation

WIDTH = 100
BETTER, WORSE = "▲", "▼"
# Cells are padded here: rich takes the blank where a mark could stand off a right-aligned cell.
DIGITS = 6


def columns(ks: Sequence[int]) -> dict[str, str]:
    """Metric -> heading of its column."""
    k = max(ks)
    first = min(ks)
    return {
        f"p_at_{first}": f"P@{first}",
        f"p_at_{k}": f"P@{k}",
        f"ndcg_at_{k}": f"nDCG@{k}",
        f"psp_at_{first}": f"PSP@{first}",
        f"psp_at_{k}": f"PSP@{k}",
        f"head_recall_at_{k}": f"head\nR@{k}",
        f"tail_recall_at_{k}": f"tail\nR@{k}",
        f"tail_coverage_at_{k}": f"tail\ncov@{k}",
    }


def render(
    evaluation: Evaluation | str | Path,
    sort: str | None = None,
    plain: bool = False,
    shown: dict[str, str] | None = None,
    caption: str | None = None,
) -> Table:
    """The leaderboard of an evaluation or of the folder it was written to.

    Parameters
    ----------
    evaluation : Evaluation, str or Path
        What to show.
    sort : str, optional
        Metric to sort by, best first; PSP at the largest k when not given.
    plain : bool
        Mark the best of a column by a star instead of by weight and colour.
    shown : dict, optional
        Metric -> heading of its column, instead of the usual ones.
    caption : str, optional
        What stands below, instead of what the evaluation knows about itself.
    """
    if not isinstance(evaluation, Evaluation):
        evaluation = Evaluation.load(evaluation)
    summary, values = evaluation.summary, evaluation.metrics
    sort = sort or f"psp_at_{max(summary['ks'])}"
    known = list(next(iter(values.values()), {}))
    if sort not in known:
        raise ConfigError(f"leaderboard: no metric {sort!r}{suggestion(sort, known)}")
    shown = columns(summary["ks"]) if shown is None else shown
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, caption_justify="left")
    table.add_column("candidate", vertical="bottom", overflow="fold", max_width=34)
    for metric, heading in shown.items():
        lines = [f"{line:>{DIGITS}}" for line in heading.split("\n")]
        order = "↓" if metric == sort else " "
        table.add_column("\n".join(lines) + order, no_wrap=True, vertical="bottom")
    best = {metric: _best(evaluation, metric) for metric in shown}
    marks = _marks(evaluation)
    for name in sorted(values, key=lambda name: _descending(values[name][sort])):
        cells = [
            _cell(values[name][m], values[name][m] == best[m], marks.get((name, m), " "), plain)
            for m in shown
        ]
        title = Text(name, style="bold" if name == summary["base"] else "")
        if name == summary["base"]:
            title.append(" (base)", style="not bold dim")
        table.add_row(title, *cells)
    table.caption = Text(_caption(evaluation, plain) if caption is None else caption, style="dim")
    return table


def text(evaluation: Evaluation | str | Path, sort: str | None = None, width: int = WIDTH) -> str:
    """The leaderboard without colours, for logs."""
    return plain_text(render(evaluation, sort, plain=True), width)


def plain_text(table: Table, width: int = WIDTH) -> str:
    """A table without colours."""
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def show(folder: str | Path, sort: str | None = None) -> None:
    """Print the leaderboard of an evaluation folder on the terminal."""
    print_table(lambda plain: render(folder, sort, plain))


def print_table(made: Callable[[bool], Table]) -> None:
    """Print a table, ``made(plain)``: with colours on a terminal, plain and wide in a file."""
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    console.print(made(not console.is_terminal))


def _marks(evaluation: Evaluation) -> dict[tuple[str, str], str]:
    """Where a candidate differs from the base by more than chance."""
    return {
        (row["candidate"], row["metric"]): BETTER if row["difference"] > 0 else WORSE
        for row in evaluation.tables["comparisons"]
        if row["against"] == "base" and row["real"]
    }


def _cell(value: float, best: bool, mark: str, plain: bool) -> Text:
    if math.isnan(value):
        return Text(f"{'-':>{DIGITS}}", style="dim")
    number = f"{value:.2f}" if value < 99.995 else "100.0"
    number = f"*{number}" if plain and best else number
    cell = Text(" " * (DIGITS - len(number)))
    cell.append(number, style="bold underline" if best and not plain else "")
    return cell.append(mark, style={BETTER: "green", WORSE: "red"}.get(mark, ""))


def _best(evaluation: Evaluation, metric: str) -> float:
    values = [row[metric] for row in evaluation.metrics.values() if not math.isnan(row[metric])]
    return max(values, default=math.nan)


def _descending(value: float) -> float:
    return math.inf if math.isnan(value) else -value


def _caption(evaluation: Evaluation, plain: bool) -> str:
    summary, k = evaluation.summary, max(evaluation.summary["ks"])
    halves = [
        (row["high"] - row["low"]) / 2
        for row in evaluation.tables["comparisons"]
        if row["against"] == "base" and row["metric"] == f"p_at_{k}"
        if row["candidate"] != summary["base"] and not math.isnan(row["low"])
    ]
    width = f" (P@{k}: ±{max(halves):.2f} or less)" if halves else ""
    best = "*" if plain else "bold underlined"
    return (
        f"Percent, {summary['texts']:,} test texts, {summary['labels']:,} labels. "
        f"{best}: best of its column. {BETTER} {WORSE}: better or worse than {summary['base']}, "
        f"beyond a {summary['confidence']:.0%} paired bootstrap interval{width}."
    )
