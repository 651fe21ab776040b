"""The tables of a study as cells, for the terminal and for pages alike."""

from __future__ import annotations

import math

from coattail.evaluation.metrics import CHANGES
from coattail.studies import published
from coattail.studies.current import StudyStanding
from coattail.studies.figures import Figure, heading

Table = list[list[str]]


def figures(one: StudyStanding) -> Table:
    """Every row: ours with spread over seeds and interval, the paper's below."""
    table = [["", *(heading(metric) for metric in one.study.columns), "processor s"]]
    for row, params in one.study.rows.items():
        printed = [_printed(one.published(row, metric)) for metric in one.study.columns]
        if row in one.rows:
            ours = [_figure(one.figure(row, metric)) for metric in one.study.columns]
            seconds = one.seconds(row)
            table.append([params.title, *ours, "" if seconds is None else f"{seconds:.0f}"])
        else:
            table.append([params.title, "row missing", *[""] * len(one.study.columns)])
        if any(printed):
            table.append(["   in the paper", *printed, ""])
    return table


def gains(one: StudyStanding) -> Table:
    """Every row against its control: our difference with its interval, the paper's beside."""
    metrics = [metric for metric in one.study.columns if metric not in CHANGES]
    table = [["gain", *(heading(metric) for metric in metrics)]]
    for row, against, found in one.gains:
        names = [one.study.rows[name].title for name in (row, against)]
        table.append([f"{names[0]} over {names[1]}", *(_gain(found.get(m)) for m in metrics)])
        printed = [published.gain(one.study, row, against, metric) for metric in metrics]
        if any(value is not None for value in printed):
            cells = ["" if value is None else f"{value:+.2f}" for value in printed]
            table.append(["   in the paper", *cells])
    return table


def effects(one: StudyStanding) -> Table:
    """What each factor does, and how every two work together."""
    metrics = [metric for metric in one.study.columns if metric not in CHANGES]
    table = [["effect", *(heading(metric) for metric in metrics)]]
    found = one.found.effects if one.found else {}
    for name, values in found.items():
        table.append([name.replace("_", " "), *(_gain(values.get(m)) for m in metrics)])
    return table


def claims(one: StudyStanding) -> Table:
    table = [["claim", "verdict", "because"]]
    for claim, verdict in zip(one.study.claims, one.verdicts, strict=True):
        table.append([claim.says, verdict.word, verdict.why])
    return table


def _figure(found: Figure | None) -> str:
    if found is None or math.isnan(found.value):
        return ""
    spread = f" ±{found.spread:.2f}" if found.spread >= 0.005 else ""
    return f"{found.value:.2f}{spread} [{found.low:.1f}, {found.high:.1f}]"


def _gain(found: Figure | None) -> str:
    if found is None or math.isnan(found.value):
        return ""
    return f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def _printed(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def aligned(table: Table) -> str:
    """For a terminal."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in table]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def markdown(table: Table) -> str:
    lines = [f"| {' | '.join(cell.strip().replace('|', '/') for cell in row)} |" for row in table]
    return "".join(f"{line}\n" for line in [lines[0], "| --- " * len(table[0]) + "|", *lines[1:]])
