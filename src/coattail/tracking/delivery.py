"""Show a run record in a store completely and once, however often the server was away before."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coattail.errors import CoattailError
from coattail.files import atomic_file
from coattail.pipeline.stage_result import is_timing
from coattail.tracking import journal
from coattail.tracking.record import Point, RunRecord
from coattail.tracking.store import (
    KIND,
    QUICK,
    RESULT,
    UID,
    Store,
    address,
    open_store,
    outages,
    pipeline_key,
    root,
    tracked_params,
    unused,
)

log = logging.getLogger("coattail")

ENDED = ("FINISHED", "FAILED", "KILLED")
REST = 10  # after a failure the store is left alone for so many times what the failure took
HANGING = 5.0  # seconds: a server that took longer to fail is not just restarting


class Line:
    """A stage's way to the store while it runs: what cannot be sent waits and is tried again.

    Nothing here raises or takes more than about a tenth of the stage's time, so training goes on
    whatever the server does.
    """

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._store: Store | None = None
        self._started = False
        self._sent = 0  # points of the history that the store has
        self._rest_until = time.monotonic() + _rest_of_others()
        self._failed = False

    def start(self) -> None:
        """Open the store and the run; also tried again by the calls below."""
        self._try("starting the run", self._start)

    def send(self) -> None:
        """Send the points that were logged since the last time."""
        self._try("logging metrics", self._send)

    def close(self) -> None:
        """Complete the run; a record that the store did not take is kept for `coattail sync`."""
        if self._rest_until - time.monotonic() < HANGING:
            self._rest_until = 0.0
        if not self._try("closing the run", self._close):
            keep(self.record)

    def _start(self) -> Store:
        record = self.record
        if self._store is None:
            self._store = Store(record.tags["dataset"], QUICK)
        if not self._started:
            _begin(self._store, record)
            self._started = True
        return self._store

    def _send(self) -> None:
        store, upto = self._start(), len(self.record.history)
        store.metrics(str(self.record.run_id), self.record.history[self._sent : upto])
        self._sent = upto

    def _close(self) -> None:
        self._send()
        store, record = self._start(), self.record
        _end(store, str(record.run_id), record)
        if record.status != "FINISHED" and record.parent_run_id:
            _fail_parent(store, record.parent_run_id, record)

    def _try(self, what: str, action: Callable[[], object]) -> bool:
        began = time.monotonic()
        if began < self._rest_until:
            return False
        try:
            action()
        except Exception as error:
            spent = time.monotonic() - began
            self._rest_until = time.monotonic() + REST * spent
            if spent > HANGING:
                _away().parent.mkdir(parents=True, exist_ok=True)
                _away().write_text(address())
            if not self._failed:
                reason = str(error).strip().split("\n")[0][:300]
                log.warning("tracking: %s failed (%s); it is kept and sent later", what, reason)
            self._failed = True
            return False
        if self._failed:
            log.info("tracking: the store answers again")
        self._failed = False
        return True


def _away() -> Path:
    return root() / ".dvc" / "tmp" / "coattail" / "store-away"


def _rest_of_others() -> float:
    """Seconds to leave a server alone that hung in another process a moment ago."""
    try:
        same = _away().read_text() == address()
        age = time.time() - _away().stat().st_mtime
    except OSError:
        return 0.0
    return max(0.0, 60.0 - age) if same and age >= 0 else 0.0


# --- one record into one run ---------------------------------------------------------------------


def _begin(store: Store, record: RunRecord) -> None:
    """The run of a stage that starts now, under the parent of this pipeline execution."""
    own = {"stage", "dvc.stage", "data.md5"}
    shared = {key: value for key, value in record.tags.items() if key not in own}
    record.parent_run_id = store.parent(shared, tracked_params(), record.key or pipeline_key())
    run = own_run(store, record)  # an earlier try may have made it and lost the answer
    record.run_id = run.info.run_id if run else _create(store, record, record.parent_run_id, {})
    _describe(store, str(record.run_id), record)


def _create(store: Store, record: RunRecord, parent: str, tags: dict[str, str]) -> str:
    everything = record.tags | tags | {UID: record.uid}
    return store.create(record.name, "stage", parent, everything, record.started or None)


def _describe(store: Store, run_id: str, record: RunRecord) -> None:
    store.params(run_id, record.params)
    if "data.md5" in record.tags:
        store.dataset(run_id, record.tags["dataset"], record.tags["data.md5"])


def _end(store: Store, run_id: str, record: RunRecord) -> None:
    """Everything that is known at the end; the status comes last and says: complete."""
    store.metrics(run_id, [Point(k, v, 0, record.ended) for k, v in record.metrics.items()])
    store.tags(run_id, record.tags | ({} if record.known else {RESULT: record.result().md5}))
    store.finish(run_id, record.status, record.ended or None)


def _fail_parent(store: Store, parent: str, record: RunRecord) -> None:
    # The next repro finds this parent by its key and goes on with it.
    store.tags(parent, {"failure": f"{record.name}: {record.tags['failure']}"})
    store.finish(parent, record.status, record.ended)


def own_run(store: Store, record: RunRecord) -> Any | None:
    """The run that shows this record already; doubles left by lost answers are removed."""
    if record.run_id and store.knows(record.run_id):
        return store.client.get_run(record.run_id)
    if not record.known:
        return _same_result(store, record)
    found = store.search(f"tags.`{UID}` = '{record.uid}'", f"tags.`{KIND}` = 'stage'")
    ended = [run for run in found if run.info.status in ENDED]
    kept = (ended or found[-1:] or [None])[-1]
    for run in found:
        if run is not kept:
            store.client.delete_run(run.info.run_id)
    return kept


ELSEWHERE = "coattail.elsewhere"
"""Tag of a run that shows a result whose times and machine nobody here knew."""


def _same_result(store: Store, record: RunRecord) -> Any | None:
    """The first run of anybody that computed what this record holds."""
    found = store.search(
        f"tags.`{RESULT}` = '{record.result().md5}'",
        f"tags.`{KIND}` = 'stage'",
        "attributes.status = 'FINISHED'",
    )
    computed = [run for run in found if ELSEWHERE not in run.data.tags]
    return next(reversed([*found, *computed]), None)


FOREIGN = ("mlflow.", "coattail.")
"""Beginnings of tags that belong to a run in a store, not to what it shows."""


def _learn(record: RunRecord, run: Any) -> None:
    """When, where and by whom a result was computed, from the run that shows it."""
    record.started, record.ended = run.info.start_time, run.info.end_time
    record.run_id = run.info.run_id
    record.parent_run_id = run.data.tags.get("mlflow.parentRunId")
    record.tags |= {k: v for k, v in run.data.tags.items() if not k.startswith(FOREIGN)}
    record.metrics |= {k: v for k, v in run.data.metrics.items() if is_timing(k)}
    record.uid = run.data.tags.get(UID, record.uid)
    journal.keep(record)


def recall(records: Mapping[str, RunRecord], experiment: str) -> None:
    """Ask the store about results whose circumstances the journal does not know; keep the answer.

    A store that is away is said and leaves them unknown.
    """
    unknown = [record for record in records.values() if not record.known]
    if not unknown or unused():
        return
    try:
        store = open_store(experiment, QUICK)
        for record in unknown:
            run = _same_result(store, record)
            if run is not None and ELSEWHERE not in run.data.tags:
                _learn(record, run)
    except outages() as error:
        log.warning("tracking: %s", str(error).strip().split("\n")[0][:300])


def complete(store: Store, record: RunRecord, parent: str) -> tuple[str, str]:
    """Make the store show all of a record; return the run's id and the parent it hangs under.

    A run that has ended is complete. One that was cut off gets what it lacks: MLflow takes a point
    with the same key, step, time and value only once. A record the store has never seen becomes a
    new run under ``parent``.
    """
    with store.lock():  # two processes may have the same record
        run = own_run(store, record)
        if run is None:
            how = "delivered" if record.known and not record.run_id else "replayed"
            tags = {f"coattail.{how}": "true"} | ({} if record.known else {ELSEWHERE: "true"})
            run_id = _create(store, record, parent, tags)
    if run is not None:
        if not record.known and ELSEWHERE not in run.data.tags:
            _learn(record, run)
        run_id = run.info.run_id
        parent = run.data.tags.get("mlflow.parentRunId", parent)
        if run.info.status in ENDED:
            return run_id, parent
    _describe(store, run_id, record)
    store.metrics(run_id, record.history)
    _end(store, run_id, record)
    return run_id, parent


# --- records that wait ---------------------------------------------------------------------------


def outbox() -> Path:
    """Records that no store has taken yet; in the project itself, also for queued experiments."""
    return root() / ".dvc" / "tmp" / "coattail" / "undelivered"


def keep(record: RunRecord) -> None:
    path = outbox() / f"{record.uid}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(asdict(record), indent=1, sort_keys=True) + "\n")


def waiting() -> list[Path]:
    """Kept records, oldest first."""
    dated = []
    for path in outbox().glob("*.json"):
        with suppress(FileNotFoundError):  # another process delivers it right now
            dated.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(dated)]


def deliver(open_store: Callable[[str], Store]) -> int:
    """Send every kept record, in order; return how many. A record leaves when it is shown."""
    stores: dict[str, Store] = {}
    count = 0
    for path in waiting():
        try:
            if not path.exists():
                continue  # another process was quicker
            record = RunRecord.load(path)
        except CoattailError as error:
            log.warning("tracking: %s; left where it is", error)
            continue
        experiment = record.tags.get("dataset", "unnamed")
        if experiment not in stores:
            stores[experiment] = open_store(experiment)
        _deliver(stores[experiment], record)
        path.unlink(missing_ok=True)
        count += 1
    return count


def _deliver(store: Store, record: RunRecord) -> None:
    parent, known = record.parent_run_id, store.find_parent(record.key, finished=None)
    if not parent or not store.knows(parent):
        parent = str(known.info.run_id) if known else store.parent(record.tags, {}, record.key)
    complete(store, record, parent)
    running = store.client.get_run(parent).info.status == "RUNNING"
    if record.status != "FINISHED" and running:
        _fail_parent(store, parent, record)
