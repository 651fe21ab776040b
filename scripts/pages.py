"""What the pages that are written from the code share."""

from __future__ import annotations

import textwrap

MADE = "<!-- Written by scripts/reference.py from the code; `make docs` writes it anew. -->\n"


def table(headings: str, rows: list[tuple[str, ...]]) -> str:
    """A Markdown table; a pipe in a cell is escaped."""
    names = headings.split(" | ")
    lines = [names, ["---"] * len(names), *[[cell.replace("|", r"\|") for cell in r] for r in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def wrapped(text: str) -> str:
    """Paragraphs in lines that fit a screen."""
    return "\n\n".join(
        textwrap.fill(part, 110, break_on_hyphens=False) for part in text.split("\n\n")
    )
