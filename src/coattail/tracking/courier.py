"""The process that carries runs from the outbox to MLflow, so that no stage waits for it.

One per project and store. A stage calls it; it loads MLflow once, shows what the stages leave as
they leave it, and goes when nothing has come for a while. Whatever ends it early loses nothing: the
outbox keeps what is not shown, for the next courier, publish or `coattail experiment sync`.
"""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from filelock import FileLock, Timeout

import coattail
from coattail.errors import CoattailError
from coattail.pipeline.runner import start_logging
from coattail.tracking import delivery, outbox
from coattail.tracking.outbox import Live, Parcel
from coattail.tracking.store import QUICK, Store, mark, root

log = logging.getLogger("coattail")

PAUSE = 0.25  # seconds between two looks
LINGER = 15.0  # seconds without anything new after which it goes
REST = 5  # after a failure the store is left alone for so many times what the failure took
LEAST_REST, LONGEST_REST = 1.0, 60.0
PATIENCE = 60.0  # seconds after which a stage may call again, if a courier did not last

_called = [-PATIENCE]


def call() -> None:
    """Start a courier unless one is at work. It outlives this process."""
    if time.monotonic() - _called[0] < PATIENCE or at_work():
        return
    _called[0] = time.monotonic()
    sources = str(Path(coattail.__file__).resolve().parents[1])  # a queued experiment has its own
    path = os.pathsep.join([sources, *filter(None, [os.environ.get("PYTHONPATH")])])
    with open(_own("log"), "wb") as told:
        subprocess.Popen(
            [sys.executable, "-c", "from coattail.tracking.courier import main; main()"],
            cwd=root(),
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
            start_new_session=True,  # Ctrl-C is for the stage
        )


def at_work() -> bool:
    try:
        with lock().acquire(timeout=0):
            return False
    except Timeout:
        return True


def lock() -> FileLock:
    """Held by the courier for as long as it is there."""
    return FileLock(_own("lock"))


def _own(kind: str) -> Path:
    """A file of the courier to this store."""
    return outbox.folder().parent / f"courier-{mark()}.{kind}"


class Courier:
    """What one courier knows: open stores, and how far it has shown the stages at work."""

    def __init__(self) -> None:
        self._mark = mark()
        self._stores: dict[str, Store] = {}
        self._followed: dict[Path, _Followed] = {}
        self._strange: set[Path] = set()  # files that cannot be read
        self._rest_until = 0.0

    def look(self) -> bool:
        """Show what is new; whether there was anything to do."""
        if time.monotonic() < self._rest_until or not outbox.folder().exists():
            return False  # a queued experiment's folder goes with the experiment
        began = time.monotonic()
        try:
            with delivery.turn():
                busy = self._follow_all() | self._finish_all()
        except Exception as error:
            spent = time.monotonic() - began
            self._rest_until = time.monotonic() + min(max(LEAST_REST, REST * spent), LONGEST_REST)
            reason = str(error).strip().split("\n")[0][:300]
            log.warning("courier: %s: %s", type(error).__name__, reason)
            outbox.note_failure(reason)
            return False
        if busy:
            outbox.note_failure("")
        return busy

    def _follow_all(self) -> bool:
        busy = False
        for path in outbox.running():
            delivery.bury(path)
            if path not in self._strange and path.exists():
                busy |= self._follow(path)
        return busy

    def _follow(self, path: Path) -> bool:
        """Show the points that a stage has logged since the last look."""
        try:
            one = self._followed.setdefault(path, _Followed(Live(path)))
            parcel = one.live.parcel
            return parcel.store == self._mark and one.show(self._store(parcel))
        except FileNotFoundError:  # it has ended in this moment
            return False
        except CoattailError as error:
            self._leave(path, error)
            return False

    def _finish_all(self) -> bool:
        """Show every run that has ended; one that cannot be shown does not hold up the others."""
        failed: list[tuple[Path, Exception]] = []
        busy = False
        for path in outbox.ended():
            if path in self._strange:
                continue
            try:
                busy |= self._finish(path)
            except Exception as error:
                failed.append((path, error))
                if len(failed) > 1 and not busy:  # it is the store
                    break
        if failed and not busy:
            raise failed[0][1]
        for path, reason in failed:
            self._leave(path, reason)
        return busy

    def _finish(self, path: Path) -> bool:
        parcel = outbox.load(path)
        if parcel.store not in ("", self._mark):
            return False
        one = self._followed.pop(path.with_suffix(".live"), None)
        delivery.finish(self._store(parcel), parcel, one.sent if one else 0)
        delivery.close(path, parcel)
        return True

    def _leave(self, path: Path, error: Exception) -> None:
        self._strange.add(path)
        log.warning("courier: %s cannot be shown (%s); left where it is", path, error)

    def _store(self, parcel: Parcel) -> Store:
        experiment = parcel.record.tags.get("dataset", "unnamed")
        if experiment not in self._stores:
            self._stores[experiment] = Store(experiment, QUICK)
        return self._stores[experiment]


class _Followed:
    """A stage at work, and how much of it the store has."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.sent = 0
        self._begun = False

    def show(self, store: Store) -> bool:
        record = self.live.parcel.record
        self.live.read()
        new = record.history[self.sent :]
        if self._begun and not new:
            return False
        if not self._begun:
            delivery.begin(store, self.live.parcel)
            self._begun = True
        store.metrics(str(record.run_id), new)
        self.sent += len(new)
        return True


def work() -> set[Path]:
    """Carry until nothing comes any more; return what is left."""
    courier, quiet_since = Courier(), time.monotonic()
    while True:
        left = {*outbox.running(), *outbox.ended()}
        if courier.look() or any(outbox.is_alive(path) for path in left):
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > LINGER:
            return left
        time.sleep(PAUSE)


def main() -> None:
    gc.set_threshold(50_000, 20, 100)  # as in the cli: importing MLflow makes no garbage
    start_logging()
    new = True
    while new:
        try:
            with lock().acquire(timeout=5):
                left = work()
        except Timeout:  # another one is at work
            return
        # A stage that came just before the lock was free has called nobody.
        new = bool({*outbox.running(), *outbox.ended()} - left)
