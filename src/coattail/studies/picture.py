"""The picture of a study: our gains with their intervals, the paper's beside them.

Written out as SVG, so that equal figures give equal bytes whatever draws elsewhere.
"""

from __future__ import annotations

import math
from html import escape
from typing import NamedTuple

from coattail.data.drawing import COLOURS, OWN, QUIET
from coattail.studies import published
from coattail.studies.current import StudyStanding
from coattail.studies.figures import Figure, heading

LEFT, WIDTH, LINE, TOP = 330, 460, 20, 46
OURS, PAPER, GREY = OWN, COLOURS[2], QUIET


class Mark(NamedTuple):
    label: str
    ours: Figure
    paper: float | None


def draw(one: StudyStanding) -> str | None:
    """SVG; None where nothing was compared."""
    groups = [(f"{_title(one, row)} over {_title(one, against)}", _marks(one, row, against, found))
              for row, against, found in one.gains]  # fmt: skip
    groups = [(name, marks) for name, marks in groups if marks]
    if not groups:
        return None
    values = [v for _, marks in groups for m in marks for v in (m.ours.low, m.ours.high, m.paper)]
    shown = [0.0, *(value for value in values if value is not None and value == value)]
    low, high = min(shown), max(shown)
    room = (high - low or 1.0) * 0.05
    scale = _Scale(low - room, high + room)
    height = TOP + LINE * sum(1 + len(marks) for _, marks in groups) + 30
    parts = [_legend(), *_grid(scale, height)]
    y = TOP
    for name, marks in groups:
        parts.append(_text(8, y + 12, name, "start", "#000", 'font-weight="bold"'))
        y += LINE
        for mark in marks:
            parts += _mark(mark, scale, y + 8)
            y += LINE
    size = f'width="{LEFT + WIDTH + 20}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n'
        f'<rect {size} fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


class _Scale(NamedTuple):
    low: float
    high: float

    def x(self, value: float) -> float:
        return round(LEFT + WIDTH * (value - self.low) / (self.high - self.low), 1)

    @property
    def ticks(self) -> list[float]:
        """Round values, five or so."""
        step = next(
            s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if (self.high - self.low) / s <= 8
        )
        first = int(self.low / step) - 1
        ticks = [round((first + i) * step, 2) for i in range(30)]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def _marks(one: StudyStanding, row: str, against: str, found: dict[str, Figure]) -> list[Mark]:
    metrics = [m for m in one.study.columns if m in found and not math.isnan(found[m].value)]
    return [Mark(heading(m), found[m], published.gain(one.study, row, against, m)) for m in metrics]


def _title(one: StudyStanding, row: str) -> str:
    return one.study.rows[row].title


def _legend() -> str:
    said = "gain in points, ours with its 95 % interval over texts and seeds"
    return (
        f'<circle cx="14" cy="18" r="4" fill="{OURS}"/>{_text(24, 22, said)}'
        f"{_diamond(454, 18)}"
        f"{_text(470, 22, 'gain in the paper')}"
    )


def _grid(scale: _Scale, height: int) -> list[str]:
    lines = []
    for tick in scale.ticks:
        x, colour = scale.x(tick), "#000" if tick == 0 else "#ddd"
        lines.append(f'<path d="M {x} {TOP - 4} V {height - 26}" stroke="{colour}"/>')
        lines.append(_text(x, height - 10, f"{tick:+g}" if tick else "0", "middle", GREY))
    return lines


def _mark(mark: Mark, scale: _Scale, y: int) -> list[str]:
    a, b, x = scale.x(mark.ours.low), scale.x(mark.ours.high), scale.x(mark.ours.value)
    parts = [
        _text(LEFT - 12, y + 4, mark.label, "end"),
        f'<path d="M {a} {y} H {b}" stroke="{OURS}" stroke-width="2"/>',
        f'<circle cx="{x}" cy="{y}" r="4" fill="{OURS}"/>',
    ]
    if mark.paper is not None:
        parts.append(_diamond(scale.x(mark.paper) - 5, y))
    return parts


def _diamond(x: float, y: float) -> str:
    path = f"M {round(x, 1)} {y} l 5 -5 l 5 5 l -5 5 z"
    return f'<path d="{path}" fill="none" stroke="{PAPER}" stroke-width="1.5"/>'


def _text(
    x: float, y: float, text: str, anchor: str = "start", fill: str = "#000", more: str = ""
) -> str:
    head = f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}"'
    return f"{head}{' ' + more if more else ''}>{escape(text)}</text>"
