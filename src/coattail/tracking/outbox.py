"""Where a stage leaves its run for MLflow: it writes files here and waits for no store.

While a stage runs, ``<uid>.live`` grows: a line with the parcel as it began, then a line of points
per flush. The stage holds a lock on it, which the system takes back however the stage ends. At its
end ``<uid>.json``, the whole run, takes the place of that file. The courier reads both.
"""

from __future__ import annotations

import fcntl
import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from coattail.errors import DataError
from coattail.files import atomic_file
from coattail.tracking.record import Point, RunRecord
from coattail.tracking.store import mark, root

RECENT = 600  # seconds for which a store that failed is worth a word


@dataclass
class Parcel:
    """A run on its way, with what the store needs besides."""

    record: RunRecord
    params: dict[str, Any] = field(default_factory=dict)  # of the whole pipeline
    store: str = ""  # mark of the store it is for; empty: whichever is asked first

    def line(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, default=str) + "\n"

    @staticmethod
    def read(text: str, path: Path) -> Parcel:
        try:
            content = json.loads(text)
            if "record" not in content:  # of old: a bare record
                content = {"record": content}
            return Parcel(**content | {"record": RunRecord.of(content["record"], path)})
        except (ValueError, TypeError, AttributeError) as error:
            raise DataError(f"{path} is not a run record ({error})") from None


def folder() -> Path:
    """In the project itself, also for experiments that run in a copy of it."""
    return root() / ".dvc" / "tmp" / "coattail" / "undelivered"


def begin(parcel: Parcel) -> IO[str]:
    """Leave a run that starts; the file, locked, for the points to come."""
    live = place(parcel.record)
    live.parent.mkdir(parents=True, exist_ok=True)
    # It gets its name when it is locked: whoever sees it unlocked takes the stage for dead.
    unnamed = live.with_suffix(".new")
    file = open(unnamed, "w")  # noqa: SIM115
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(parcel.line())
    file.flush()
    unnamed.rename(live)
    return file


def place(record: RunRecord) -> Path:
    """Where the run of a stage that is at work lies."""
    return folder() / f"{record.uid}.live"


def keep(parcel: Parcel) -> None:
    """Leave a run that has ended."""
    with atomic_file(folder() / f"{parcel.record.uid}.json") as path:
        path.write_text(parcel.line())


def load(path: Path) -> Parcel:
    try:
        return Parcel.read(path.read_text(), path)
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None


class Live:
    """The file of a stage at work, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        with open(path, "rb") as file:
            line = file.readline()
        self._offset = len(line)
        self.parcel = Parcel.read(line.decode(), path)

    def read(self) -> list[Point]:
        """Points that came since the last time; they are in the record's history, too."""
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            whole = file.read().rpartition(b"\n")[0]  # the rest is being written
        self._offset += len(whole) + 1 if whole else 0
        new = [Point(**one) for line in whole.splitlines() for one in json.loads(line)]
        self.parcel.record.history += new
        return new


def ended() -> list[Path]:
    """Runs that have ended, oldest first."""
    return _oldest_first("*.json")


def running() -> list[Path]:
    """Runs whose stages are at work, or were killed without a word."""
    return [path for path in _oldest_first("*.live") if not path.with_suffix(".json").exists()]


def is_alive(live: Path) -> bool:
    """Whether the stage that writes this file is still there."""
    with suppress(FileNotFoundError), open(live, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def waiting() -> list[Path]:
    """Runs that only a courier or `coattail experiment sync` can show now."""
    return ended() + [path for path in running() if not is_alive(path)]


def _oldest_first(pattern: str) -> list[Path]:
    dated = []
    for path in folder().glob(pattern):
        with suppress(FileNotFoundError):  # another process delivers it right now
            dated.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(dated)]


def note_failure(reason: str) -> None:
    """Tell later stages that the store does not answer; no reason: that it does again."""
    path = folder().parent / f"store-fails-{mark()}"
    with suppress(OSError):
        if reason:
            path.write_text(reason)
        else:
            path.unlink(missing_ok=True)


def failure() -> str:
    """Why the last try to reach the store failed, if it did within the last minutes."""
    path = folder().parent / f"store-fails-{mark()}"
    with suppress(OSError):
        if time.time() - path.stat().st_mtime < RECENT:
            return path.read_text()
    return ""
