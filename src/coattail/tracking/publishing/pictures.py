"""Pictures of an evaluation for MLflow, drawn while the process that shows them loads MLflow.

Drawing takes as long as loading, and machines have two cores.
"""

from __future__ import annotations

import io
import signal
from collections.abc import Callable
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from coattail.evaluation import plots
from coattail.evaluation.scoring import Evaluation

Pictures = dict[str, bytes]
"""PNG files by name."""


def draw(evaluation: Evaluation, name: str | None) -> Pictures:
    """Those of a candidate; None: of all together."""
    figures = plots.of_candidate(evaluation, name) if name else plots.of_all(evaluation)
    return {file: _png(figure) for file, figure in figures.items()}


def begin(evaluation: Evaluation) -> Callable[[str | None], Pictures]:
    """Have another process draw all of them; the result waits for it where it has to.

    Call it before there are threads, for the process is a fork. It ends by itself, whatever becomes
    of this one; if it ends early, the pictures are drawn here.
    """
    ours, theirs = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=_send, args=(evaluation, ours, theirs))
    process.daemon = True  # an interrupted publish does not wait for it
    process.start()
    theirs.close()

    @cache
    def drawn() -> dict[str | None, Pictures]:
        try:
            pictures: dict[str | None, Pictures] = ours.recv()
        except EOFError:
            return {}
        return pictures

    def take(name: str | None) -> Pictures:
        there = drawn()
        return there[name] if name in there else draw(evaluation, name)

    return take


def _send(evaluation: Evaluation, ours: Connection, theirs: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who waits
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ours.close()  # only then a send notices that nobody reads any more
    theirs.send({name: draw(evaluation, name) for name in (None, *evaluation.metrics)})


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
