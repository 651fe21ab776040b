"""The page itself: tables and texts as escaped HTML, numbers as JSON, scripts inside."""

from __future__ import annotations

import base64
import re
from functools import cache
from html import escape
from pathlib import Path

from coattail import __version__
from coattail.files import atomic_file
from coattail.report import champion_section, html
from coattail.report.collect import Content
from coattail.report.numbers import numbers, script_json
from coattail.report.run_section import run_section

ASSETS = Path(__file__).parent
SCRIPTS = ("charts.js", "tables.js", "page.js")
PLACE = re.compile(r"\{\{(\w+)\}\}")


def write(content: Content, path: Path) -> None:
    """The report as one file."""
    with atomic_file(path) as temporary:
        temporary.write_text(render(content), encoding="utf-8")


def render(content: Content) -> str:
    """The page as text: everything it needs is inside."""
    name = content.dataset
    pieces = {
        "title": escape(f"{name}: {len(content.candidates)} candidates compared"),
        "heading": escape(name),
        "style": (ASSETS / "page.css").read_text(encoding="utf-8"),
        "lead": html.lead(content),
        "cards": html.cards(content),
        "verdict": champion_section.verdict(content),
        "champion": champion_section.table(content),
        "champion_note": champion_section.note(content),
        "dataset": html.dataset(content),
        "leaderboard": html.leaderboard(content),
        "examples": html.examples(content),
        "run": run_section(content),
        "footer": f"coattail {escape(__version__)}",
        "numbers": script_json(numbers(content)),
        "plotly": plotly(),
        "script": "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS),
        **html.notes(content),
    }
    template = (ASSETS / "page.html").read_text(encoding="utf-8")
    # One pass: what a text of the dataset holds is never taken for a place of the template.
    return PLACE.sub(lambda match: pieces[match[1]], template)


@cache
def plotly() -> str:
    """plotly.js as base64 of a gzip file; the page unpacks it once its tables are on the screen.

    It is the basic bundle (points, lines, bars): a quarter of the whole library, which the Python
    package has, and a third of the time to start (docs/how-to/report.md).
    """
    return base64.b64encode((ASSETS / "plotly-basic.min.js.gz").read_bytes()).decode()
