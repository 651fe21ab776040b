"""Progress of long work: a bar on a terminal, a line every few seconds in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("coattail")


class Progress:
    """Counts units of work done; ``note`` carries the numbers worth showing beside the count."""

    def __init__(self, what: str, total: int, unit: str, every: float) -> None:
        self.what, self.total, self.unit, self.every = what, total, unit, every
        self.done, self.note = 0, ""
        self.before = 0  # done by an earlier run that is gone on with
        self._start = self._last = time.monotonic()

    def advance(self, by: int = 1, note: str = "", new: bool = True) -> None:
        """So much more is done; ``new: False`` if an earlier run did it."""
        self.done += by
        self.before += 0 if new else by
        self.note = note or self.note
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._last >= self.every and self.done < self.total:
            self._last = now
            log.info("%s", self.line())

    def line(self) -> str:
        """What was done, how fast, how long to go."""
        seconds = max(time.monotonic() - self._start, 1e-9)
        rate = (self.done - self.before) / seconds
        left = (self.total - self.done) / rate if rate else float("inf")
        share = f"{self.done:,}/{self.total:,} {self.unit}"
        note = f", {self.note}" if self.note else ""
        return f"{self.what}: {share}, {rate:,.0f} {self.unit}/s, {clock(left)} left{note}"


class _Bar(Progress):
    def __init__(self, what: str, total: int, unit: str, bar: object, task: object) -> None:
        super().__init__(what, total, unit, every=0.0)
        self._bar, self._task = bar, task

    def _show(self) -> None:
        self._bar.update(self._task, completed=self.done, note=self.note)  # type: ignore[attr-defined]


@contextmanager
def progress(
    what: str, total: int, unit: str = "steps", every: float = 10.0, shown: bool = True
) -> Iterator[Progress]:
    """``with progress("train", n, "labels") as bar: bar.advance(32, "loss 0.1")``."""
    start = time.monotonic()
    if not shown:  # another process speaks
        yield Progress(what, total, unit, every=float("inf"))
        return
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
            tracker: Progress = _Bar(
                what, total, unit, bar, bar.add_task(what, total=total, note="")
            )
            yield tracker
    else:
        tracker = Progress(what, total, unit, every)
        yield tracker
    note = f", {tracker.note}" if tracker.note else ""
    seconds = clock(time.monotonic() - start)
    log.info("%s: %s %s in %s%s", what, f"{tracker.done - tracker.before:,}", unit, seconds, note)


def clock(seconds: float) -> str:
    """3.2 s, 4 min 05 s, 2 h 03 min."""
    if seconds != seconds or seconds == float("inf"):
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
