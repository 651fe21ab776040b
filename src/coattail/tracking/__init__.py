"""The tie between DVC and MLflow; the only package that imports mlflow, and only when used."""

from __future__ import annotations

import csv
import logging
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from coattail.arrays import atomic_file
from coattail.config import Params
from coattail.tracking.record import Point, RunRecord, environment_tags, now
from coattail.tracking.store import Store, attempt, data_hash, dataset_name, tracked_params

log = logging.getLogger("coattail")

FLUSH_SECONDS = 2.0


class StageRun:
    """What a stage script holds while it works: a place for numbers and facts."""

    def __init__(self, record: RunRecord, store: Store | None) -> None:
        self.record, self._store = record, store
        self._waiting: list[Point] = []
        self._flushed = time.monotonic()

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Numbers along the way (loss, validation figures); they reach MLflow as they happen."""
        points = [Point(key, float(value), step, now()) for key, value in values.items()]
        self.record.history += points
        self._waiting += points
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def metrics(self, values: Mapping[str, float]) -> None:
        """Final numbers of the stage."""
        self.record.metrics.update({key: float(value) for key, value in values.items()})

    def note(self, **facts: object) -> None:
        """Facts a reader will ask for: the device it ran on, the size of the model."""
        self.record.tags.update({key: str(value) for key, value in facts.items()})

    def curve(self, path: str | Path) -> None:
        """The numbers logged so far as CSV, one row per step, for `dvc plots`."""
        names = list(dict.fromkeys(point.key for point in self.record.history))
        rows: dict[int, dict[str, float]] = {}
        for point in self.record.history:
            rows.setdefault(point.step, {})[point.key] = point.value
        with atomic_file(path) as temporary, open(temporary, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", *names])
            for step, values in sorted(rows.items()):
                writer.writerow([step, *(f"{values[n]:.6g}" if n in values else "" for n in names)])

    def flush(self) -> None:
        self._flushed = time.monotonic()
        waiting, self._waiting = self._waiting, []
        store, run_id = self._store, self.record.run_id
        if waiting and store and run_id:
            attempt("logging metrics", lambda: store.metrics(run_id, waiting))


@contextmanager
def stage(name: str, variant: str | None, params: Params | None) -> Iterator[StageRun]:
    """Run a stage's body as one MLflow run under the pipeline's parent; leave a run record.

    An error or an interrupt is shown on the run with its reason and raised again; the record is
    written only on success, so DVC never caches a failed stage.
    """
    record = RunRecord(
        name,
        variant,
        params.model_dump(mode="json") if params else {},
        now(),
        tags=environment_tags(),
    )
    record.tags |= {"dataset": dataset_name(), "stage": name, "dvc.stage": record.address}
    store = attempt("opening the store", lambda: Store(record.tags["dataset"]))
    if store:
        attempt("starting the run", lambda: _start(store, record))
    log.info("%s: start", record.address)
    run = StageRun(record, store)
    try:
        yield run
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
        record.status = "KILLED" if interrupted else "FAILED"
        record.tags["failure"] = f"{type(error).__name__}: {error}"
        record.tags["failure.trace"] = traceback.format_exc()[-4000:]
        _finish(store, run)
        raise
    record.status = "FINISHED"
    _finish(store, run)
    record.save()
    numbers = ", ".join(f"{key} {value:g}" for key, value in list(record.metrics.items())[:6])
    log.info("%s: done in %.1f s%s", record.address, record.seconds, numbers and f"; {numbers}")


def _start(store: Store, record: RunRecord) -> None:
    own = {"stage", "dvc.stage"}
    shared = {key: value for key, value in record.tags.items() if key not in own}
    record.parent_run_id = store.parent(shared, tracked_params())
    record.run_id = store.create(record.name, "stage", record.parent_run_id, record.tags)
    store.params(record.run_id, record.params)
    digest = data_hash()
    if digest:
        record.tags["data.md5"] = digest
        store.dataset(record.run_id, record.tags["dataset"], digest)


def _finish(store: Store | None, run: StageRun) -> None:
    record = run.record
    record.ended = now()
    run.flush()
    if store is None or record.run_id is None:
        return
    run_id = record.run_id

    def close() -> None:
        record.metrics.setdefault("seconds", record.seconds)
        store.metrics(run_id, [Point(k, v, 0, record.ended) for k, v in record.metrics.items()])
        store.tags(run_id, record.tags)
        store.finish(run_id, record.status, record.ended)
        if record.status != "FINISHED" and record.parent_run_id:
            # The next repro finds this parent by its key and goes on with it.
            store.tags(
                record.parent_run_id, {"failure": f"{record.name}: {record.tags['failure']}"}
            )
            store.finish(record.parent_run_id, record.status, record.ended)

    attempt("closing the run", close)
