"""Pictures of an evaluation for MLflow, drawn while the process that shows them loads MLflow.

Drawing takes as long as loading, and machines have two cores.
"""

from __future__ import annotations

import io
import signal
from collections.abc import Callable
from contextlib import suppress
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

    there: dict[str | None, Pictures] = {}

    def take(name: str | None) -> Pictures:
        with suppress(EOFError):
            while name not in there:  # those of others are for nobody to wait for
                there.update([ours.recv()])
        return there[name] if name in there else draw(evaluation, name)

    return take


def _send(evaluation: Evaluation, ours: Connection, theirs: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who waits
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ours.close()  # only then a send notices that nobody reads any more
    with suppress(BrokenPipeError):
        for name in (None, *evaluation.metrics):
            theirs.send((name, draw(evaluation, name)))


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
