"""A stage's way to MLflow: it leaves what it has in the outbox and calls the courier."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import IO

from coattail.tracking import courier, outbox
from coattail.tracking.record import RunRecord
from coattail.tracking.store import mark, tracked_params

log = logging.getLogger("coattail")


class Line:
    """Nothing here waits for a store or raises: training goes on whatever happens to MLflow."""

    def __init__(self, record: RunRecord) -> None:
        self._parcel = outbox.Parcel(record, tracked_params(), mark())
        self._file: IO[str] | None = None
        self._written = 0  # points of the history that are in the file

    def start(self) -> None:
        """Say that the stage has begun."""
        self._try(self._start)

    def send(self) -> None:
        """Leave the points that were logged since the last time."""
        self._try(self._send)

    def close(self) -> None:
        """Leave the whole run."""
        self._try(self._close)
        failure = outbox.failure()
        if failure:
            log.warning("tracking: the MLflow store fails (%s); runs are kept for it", failure)

    def _start(self) -> None:
        self._file = outbox.begin(self._parcel)
        courier.call()

    def _send(self) -> None:
        points = self._parcel.record.history[self._written :]
        if self._file is None or not points:
            return
        self._file.write(json.dumps([asdict(point) for point in points]) + "\n")
        self._file.flush()
        self._written += len(points)
        courier.call()  # there is one already, unless somebody has ended it

    def _close(self) -> None:
        outbox.keep(self._parcel)
        if self._file is not None:
            outbox.place(self._parcel.record).unlink(missing_ok=True)
            self._file.close()
        courier.call()

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            log.warning("tracking: this run may be missing in MLflow (%s)", error)
