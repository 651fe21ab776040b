"""Show a run record in a store completely and once, however often the server was away before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from coattail.errors import CoattailError
from coattail.pipeline.stage_result import is_timing
from coattail.tracking import journal, outbox
from coattail.tracking.outbox import Parcel
from coattail.tracking.record import Point, RunRecord, now
from coattail.tracking.store import (
    KIND,
    QUICK,
    RESULT,
    UID,
    Store,
    open_store,
    outages,
    told,
    unused,
)

log = logging.getLogger("coattail")

ENDED = ("FINISHED", "FAILED", "KILLED")
NONE: Mapping[str, Any] = {}
OWN = ("stage", "dvc.stage", "data.md5")
"""Tags of a stage that its pipeline's run does not share."""


# --- a run on its way ----------------------------------------------------------------------------


def begin(store: Store, parcel: Parcel) -> None:
    """The run of a stage, made if it is not there, under the parent of its pipeline execution."""
    record = parcel.record
    run = own_run(store, record)  # an earlier try may have made it and lost the answer
    if run is not None:
        record.run_id = run.info.run_id
        record.parent_run_id = run.data.tags.get("mlflow.parentRunId")
        return
    record.parent_run_id = _parent(store, parcel)
    with store.lock():  # two processes may have the same record
        run = own_run(store, record)
        record.run_id = run.info.run_id if run else _create(store, record, record.parent_run_id, {})
    _describe(store, str(record.run_id), record)


def finish(store: Store, parcel: Parcel, sent: int = 0) -> None:
    """Make the store show all of a run that has ended; ``sent`` points of it are there already."""
    record = parcel.record
    begin(store, parcel)
    shown = store.client.get_run(record.run_id).info
    if (shown.status, shown.end_time) != (record.status, record.ended):
        store.metrics(str(record.run_id), record.history[sent:])
        _end(store, str(record.run_id), record)
    if record.status != "FINISHED":
        _fail_parent(store, str(record.parent_run_id), record)


def _parent(store: Store, parcel: Parcel) -> str:
    """The run of the pipeline execution that was going on when a stage began."""
    record = parcel.record
    last = store.find_parent(record.key, finished=True)
    if last is not None and last.info.end_time > record.started:
        return str(last.info.run_id)  # the record comes late
    shared = {key: value for key, value in record.tags.items() if key not in OWN}
    return store.parent(shared, parcel.params, record.key, record.started)


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
    # The next repro finds this parent by its key and goes on with it; one that has done so stays.
    if store.client.get_run(parent).info.status == "FINISHED":
        return
    store.tags(parent, {"failure": f"{record.name}: {record.tags['failure']}"})
    store.finish(parent, record.status, record.ended)


def own_run(store: Store, record: RunRecord, known: Mapping[str, Any] = NONE) -> Any | None:
    """The run that shows this record already; doubles left by lost answers are removed.

    ``known`` has runs that were asked for before, by id.
    """
    shown = known.get(str(record.run_id)) or store.run(record.run_id)
    if shown is not None:
        return shown
    if record.status == "FINISHED" and not record.known:
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
        log.warning("tracking: %s", told(error))


def complete(
    store: Store, record: RunRecord, parent: str, known: Mapping[str, Any] = NONE
) -> tuple[str, str]:
    """Make the store show all of a record; return the run's id and the parent it hangs under.

    A run that has ended is complete. One that was cut off gets what it lacks: MLflow takes a point
    with the same key, step, time and value only once. A record the store has never seen becomes a
    new run under ``parent``.
    """
    with store.lock():  # two processes may have the same record
        run = own_run(store, record, known)
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


# --- runs that wait ------------------------------------------------------------------------------


def turn() -> FileLock:
    """Held by whoever delivers: a courier, publish or sync."""
    outbox.folder().mkdir(parents=True, exist_ok=True)
    return FileLock(outbox.folder().parent / "delivery.lock", timeout=120)


def deliver(open_store: Callable[[str], Store]) -> int:
    """Send every run that has ended, in order; return how many. One leaves when it is shown."""
    stores: dict[str, Store] = {}
    count = 0
    with turn():
        for live in outbox.running():
            bury(live)
        for path in outbox.ended():
            try:
                parcel = outbox.load(path)
            except CoattailError as error:
                log.warning("tracking: %s; left where it is", error)
                continue
            experiment = parcel.record.tags.get("dataset", "unnamed")
            if experiment not in stores:
                stores[experiment] = open_store(experiment)
            finish(stores[experiment], parcel)
            close(path, parcel)
            count += 1
    return count


def close(path: Path, parcel: Parcel) -> None:
    """A run that is shown leaves the outbox, and the journal learns where it is shown."""
    journal.learn(parcel.record)
    path.unlink(missing_ok=True)
    path.with_suffix(".live").unlink(missing_ok=True)


def bury(live: Path) -> None:
    """End the run of a stage that was killed without a word."""
    if outbox.is_alive(live) or live.with_suffix(".json").exists():
        return
    try:
        seen = outbox.Live(live)
        seen.read()
    except FileNotFoundError:  # it has ended properly in this moment
        return
    except CoattailError as error:
        log.warning("tracking: %s", error)
    else:
        record = seen.parcel.record
        record.status, record.ended = "KILLED", now()
        record.tags["failure"] = "the process ended without a word: killed, or out of memory"
        outbox.keep(seen.parcel)
    live.unlink(missing_ok=True)
