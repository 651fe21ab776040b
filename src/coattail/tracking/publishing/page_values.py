"""Numbers and pictures as MLflow's pages show them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from coattail.tracking.publishing.shown import Shown
from coattail.tracking.record import Point, now
from coattail.tracking.store import Store

REPORT, PICTURES = "report", "pictures"


def points(values: dict[str, float], time: int = 0) -> list[Point]:
    """One point per figure; with a time of its own, a second try adds none."""
    time = time or now()
    return [Point(key, _readable(float(value)), 0, time) for key, value in values.items()]


def _readable(value: float) -> float:
    """Two digits after the point, more where a number is small: no page rounds by itself."""
    return round(value, 2) if abs(value) >= 0.1 or value != value else float(f"{value:.2g}")


def show_pictures(store: Store, run_id: str, shown: Shown, candidate: str | None = None) -> None:
    """Pictures of one candidate, or of all together."""
    with tempfile.TemporaryDirectory() as place:
        for name, content in (shown.pictures(candidate) if shown.pictures else {}).items():
            path = Path(place) / name
            path.write_bytes(content)
            store.client.log_artifact(run_id, str(path), PICTURES)
