"""The one look of our pictures: colours of bands, ink and grid, figures whose bytes repeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coattail.files import atomic_file
from coattail.labels.frequency import BANDS

COLOURS = ("#0072b2", "#009e73", "#d55e00")  # told apart by colour-blind people, too
OF_BAND = dict(zip(BANDS, COLOURS, strict=True))
INK, GRID, QUIET, BAR = "#333333", "#dddddd", "#9aa5b1", "#8fb8d8"
OWN = COLOURS[0]


def figure(
    width: float, height: float, panels: int = 1, *, dpi: int = 110
) -> tuple[Any, list[Any]]:
    """A figure that belongs to no window, and its axes side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    FigureCanvasAgg(sheet)
    drawn = list(sheet.subplots(1, panels, squeeze=False)[0])
    for axes in drawn:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=GRID, lw=0.6)
        axes.set_axisbelow(True)
    return sheet, drawn


@contextmanager
def picture(path: Path) -> Iterator[Any]:
    """Axes to draw on; saved as PNG without software or date inside, so bytes repeat."""
    sheet, (axes,) = figure(7.2, 4.2, dpi=120)
    yield axes
    with atomic_file(path) as temporary:
        sheet.savefig(temporary, format="png", metadata={"Software": None})
