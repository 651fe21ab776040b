"""A stage whose run is somebody else's: what it logs goes to a file, not to MLflow."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from coattail.files import atomic_file
from coattail.tracking.record import Point, RunRecord

PLACE = "COATTAIL_JOURNAL"
"""Variable of the environment: the file. `coattail tune` sets it for the stages of its trials."""


class TrialLine:
    """Takes the place of a stage's line to the store."""

    def __init__(self, record: RunRecord, path: Path) -> None:
        self.record, self.path = record, path

    @staticmethod
    def asked(record: RunRecord) -> TrialLine | None:
        place = os.environ.get(PLACE)
        return TrialLine(record, Path(place)) if place else None

    def start(self) -> None:
        self.send()

    def send(self) -> None:
        with atomic_file(self.path) as temporary:
            temporary.write_text(json.dumps([asdict(point) for point in self.record.history]))

    def close(self) -> None:
        self.send()


def read(path: Path) -> list[Point]:
    """The points logged so far; none before the stage has begun."""
    try:
        return [Point(**point) for point in json.loads(path.read_text())]
    except FileNotFoundError:
        return []
