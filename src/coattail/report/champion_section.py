"""The champion on the page: why it is, what speaks against it, and validation against test."""

from __future__ import annotations

import math
from html import escape

from coattail.evaluation.champion import Champion
from coattail.evaluation.leaderboard import APART, BELOW
from coattail.evaluation.statements import gap, on_validation, reason, title, unlike_test, warnings
from coattail.report.collect import Content
from coattail.report.html import number, roles


def verdict(content: Content) -> str:
    """The reason, and what has to be said aloud."""
    evaluation = content.evaluation
    told = f"<p><b>Champion:</b> {escape(reason(evaluation))}</p>"
    return told + "".join(
        f'<p class="loud">{escape(warning)}</p>' for warning in warnings(evaluation)
    )


def note(content: Content) -> str:
    """How to read the table, and whether validation and test tell the same story."""
    summary = content.evaluation.summary
    style = ' class="loud"' if unlike_test(content.evaluation) else ""
    return (
        f"The champion is published and tags new texts. It is chosen on {summary['valid_texts']:,} "
        "validation texts; test is read once and chooses nothing. "
        f"{BELOW}: below the floor. {APART}: validation and test differ beyond chance. "
        f"</p><p{style}>{escape(gap(content.evaluation))}"
    )


def table(content: Content) -> str:
    """Every candidate on validation and on test, in the metrics that the rule looks at."""
    evaluation = content.evaluation
    chosen = Champion.of(evaluation.summary)
    figures = {metric: on_validation(evaluation, metric) for metric in chosen.metrics}
    order = sorted(figures[chosen.by].items(), key=lambda item: _descending(item[1]["valid"]))
    heads = "".join(
        f"<th>{escape(title(metric))}<br>validation</th><th><br>test</th><th><br>difference</th>"
        for metric in figures
    )
    lines = []
    for name, _ in order:
        cells = "".join(_cells(chosen, rows[name]) for rows in figures.values())
        style = ' class="chosen"' if name == chosen.name else ""
        head = f"{escape(name)}<small>{escape(roles(content, name))}</small>"
        lines.append(f'<tr{style}><th scope="row">{head}</th>{cells}</tr>')
    return (
        '<div class="scroll"><table id="table-champion">'
        f"<thead><tr><th>candidate</th>{heads}</tr></thead><tbody>{''.join(lines)}</tbody>"
        "</table></div>"
    )


def _cells(chosen: Champion, row: dict[str, float]) -> str:
    below = BELOW if chosen.falls_short(str(row["metric"]), row["valid"]) else ""
    differs = APART if row["real"] else ""
    difference = "–" if math.isnan(row["difference"]) else f"{row['difference']:+.2f}"
    interval = "" if math.isnan(row["low"]) else f"{row['low']:+.2f} to {row['high']:+.2f}"
    return (
        f"<td>{number(row['valid'])}{_mark(below)}</td><td>{number(row['test'])}</td>"
        f"<td>{difference}{_mark(differs)}<small>{interval}</small></td>"
    )


def _mark(text: str) -> str:
    return f'<i class="mark down">{text}</i>'


def _descending(value: float) -> float:
    return math.inf if math.isnan(value) else -value
