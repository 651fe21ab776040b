"""What a run ends with: a row per candidate, head and tail beside the whole, and the champion."""

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
from coattail.evaluation.champion import Champion
from coattail.evaluation.scoring import Evaluation, Row
from coattail.evaluation.statements import (
    gap,
    on_validation,
    reason,
    title,
    unlike_test,
    warnings,
)

WIDTH = 100
BETTER, WORSE = "▲", "▼"
APART, BELOW = "≠", "✗"
"""Marks of validation figures: beyond chance from those of test; below the floor."""
# Cells are padded here: rich takes the blank where a mark could stand off a right-aligned cell.
DIGITS = 6
NAME = 34


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
    width: int | None = None,
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
    width : int, optional
        Characters there are: usual columns that do not fit are left out, and named below.
    """
    if not isinstance(evaluation, Evaluation):
        evaluation = Evaluation.load(evaluation)
    summary, values = evaluation.summary, evaluation.metrics
    sort = sort or f"psp_at_{max(summary['ks'])}"
    known = list(next(iter(values.values()), {}))
    if sort not in known:
        raise ConfigError(f"leaderboard: no metric {sort!r}{suggestion(sort, known)}")
    usual = columns(summary["ks"])
    if shown is None:
        shown = _fitting(evaluation, usual, width, sort)
    left_out = [usual[m].replace("\n", " ") for m in usual if m not in shown]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, caption_justify="left")
    table.add_column("candidate", vertical="bottom", overflow="fold", max_width=NAME)
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
        table.add_row(_name(name, summary), *cells)
    if caption is None:
        caption = _caption(evaluation, plain)
        caption += f" Left out for want of width: {', '.join(left_out)}." if left_out else ""
    table.caption = Text(caption, style="dim")
    return table


def _fitting(
    evaluation: Evaluation, usual: dict[str, str], width: int | None, sort: str
) -> dict[str, str]:
    """The usual columns without those that would leave no room for the names."""
    summary, shown = evaluation.summary, dict(usual)
    longest = max(min(len(_name(name, summary)), NAME) for name in evaluation.metrics)
    k, first = max(summary["ks"]), min(summary["ks"])
    for metric in (f"psp_at_{first}", f"tail_coverage_at_{k}", f"ndcg_at_{k}"):
        if width is None or longest + 2 + (DIGITS + 2) * len(shown) <= width:
            break
        if metric not in (sort, f"psp_at_{k}"):
            shown.pop(metric)
    return shown


def choice(evaluation: Evaluation) -> Table:
    """How the champion was chosen: every candidate on validation, the best by the rule first."""
    chosen = Champion.of(evaluation.summary)
    figures = {metric: on_validation(evaluation, metric) for metric in chosen.metrics}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, caption_justify="left")
    table.add_column("chosen on validation", vertical="bottom", overflow="fold", max_width=NAME)
    for metric in figures:
        width = max(DIGITS, len(title(metric)))
        for lines in ((title(metric), "valid"), ("valid", "-test")):
            heading = "\n".join(f"{line:>{width}}" for line in lines)
            table.add_column(f"{heading} ", no_wrap=True, vertical="bottom", justify="right")
    by = figures[chosen.by]
    for name in sorted(by, key=lambda name: _descending(by[name]["valid"])):
        cells = []
        for metric, rows in figures.items():
            value = rows[name]["valid"]
            cells += [_figure(value, chosen.falls_short(metric, value)), _difference(rows[name])]
        table.add_row(_name(name, evaluation.summary), *cells)
    table.caption = Text(_meaning_of_marks(chosen, figures), style="dim")
    return table


def _meaning_of_marks(chosen: Champion, figures: dict[str, dict[str, Row]]) -> str:
    """What the marks that the table has mean."""
    shown = [row for rows in figures.values() for row in rows.values()]
    notes = []
    if any(chosen.falls_short(row["metric"], row["valid"]) for row in shown):
        notes.append(f"{BELOW}: below the floor.")
    if any(row["real"] for row in shown):
        notes.append(f"{APART}: beyond chance.")
    return " ".join(notes)


def _figure(value: float, below: bool) -> Text:
    shown = Text(f"{'-' if math.isnan(value) else f'{value:.2f}':>{DIGITS}}")
    return shown.append(BELOW if below else " ", style="red")


def _difference(row: Row) -> Text:
    value = row["difference"]
    shown = Text(f"{'-' if math.isnan(value) else f'{value:+.2f}':>{DIGITS}}")
    return shown.append(APART if row["real"] else " ", style="red")


def _name(name: str, summary: Row) -> Text:
    """A candidate's name, and whether it is the base or the champion."""
    champion = summary.get("champion", {}).get("name")  # a comparison of runs has none
    holders = {"base": summary["base"], "champion": champion}
    roles = [role for role, holder in holders.items() if holder == name]
    shown = Text(name, style="bold" if name == summary["base"] else "")
    style = "bold green" if name == champion else "not bold dim"
    return shown.append(f" ({', '.join(roles)})", style) if roles else shown


def verdict(evaluation: Evaluation) -> list[tuple[str, str]]:
    """The champion's reason, what speaks against it, and validation against test; with styles."""
    lines = [(f"Champion: {reason(evaluation)}", "bold")]
    lines += [(f"! {warning}", "bold red") for warning in warnings(evaluation)]
    return [*lines, (gap(evaluation), "red" if unlike_test(evaluation) else "")]


def text(evaluation: Evaluation | str | Path, sort: str | None = None, width: int = WIDTH) -> str:
    """The leaderboard and the champion without colours, for logs."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, color_system=None)
    _print(console, evaluation, sort, plain=True)
    return _trimmed(buffer.getvalue())


def plain_text(table: Table, width: int = WIDTH) -> str:
    """A table without colours."""
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None).print(table)
    return _trimmed(buffer.getvalue())


def _trimmed(printed: str) -> str:
    return "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"


def show(folder: str | Path, sort: str | None = None) -> None:
    """Print the leaderboard of an evaluation folder on the terminal, and who is champion."""
    console = _console()
    _print(console, folder, sort, not console.is_terminal)


def _print(
    console: Console, evaluation: Evaluation | str | Path, sort: str | None, plain: bool
) -> None:
    if not isinstance(evaluation, Evaluation):
        evaluation = Evaluation.load(evaluation)
    console.print(render(evaluation, sort, plain, width=console.width))
    console.print()
    console.print(choice(evaluation))
    for line, style in verdict(evaluation):
        console.print(Text(line, style))


def _console() -> Console:
    """The terminal; in a file as wide as a table needs."""
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    return console


def print_table(made: Callable[[bool], Table]) -> None:
    """Print a table, ``made(plain)``: with colours on a terminal, plain and wide in a file."""
    console = _console()
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
        f"{best}: best of its column. {BETTER} {WORSE}: better or worse than {summary['base']} "
        f"beyond chance, by {summary['confidence']:.0%} paired bootstrap intervals that hold for "
        f"all candidates of a column at once{width}."
    )
