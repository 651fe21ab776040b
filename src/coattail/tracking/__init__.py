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
from coattail.tracking.delivery import Line
from coattail.tracking.record import Point, RunRecord, environment_tags, now
from coattail.tracking.store import data_hash, dataset_name, pipeline_key, user_name
from coattail.tracking.trial_line import Journal

log = logging.getLogger("coattail")

FLUSH_SECONDS = 2.0


class StageRun:
    """What a stage script holds while it works: a place for numbers and facts."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._line: Line | Journal = Journal.asked(record) or Line(record)
        self._line.start()
        self._flushed = time.monotonic()

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Numbers along the way (loss, validation figures); they reach MLflow as they happen."""
        time_now = now()
        self.record.history += [Point(k, float(v), step, time_now) for k, v in values.items()]
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def metrics(self, values: Mapping[str, float]) -> None:
        """Final numbers of the stage."""
        self.record.metrics.update({key: float(value) for key, value in values.items()})

    def note(self, **facts: object) -> None:
        """Facts a reader will ask for: the device it ran on, the size of the model."""
        self.record.tags.update({key: str(value) for key, value in facts.items()})

    def curve(self, path: str | Path) -> None:
        """The numbers logged so far as CSV, one row per step, for `dvc plots`.

        Without speeds: the same training has to give the same bytes.
        """
        keys = dict.fromkeys(point.key for point in self.record.history)
        names = [key for key in keys if not key.endswith("_per_second")]
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
        self._line.send()

    def finish(self, status: str) -> None:
        """Close the run in MLflow, or keep its record until `coattail sync` can."""
        record = self.record
        record.status, record.ended = status, now()
        record.metrics.setdefault("seconds", record.seconds)
        self._line.close()


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
    record.tags["user"] = user_name()
    digest = data_hash()
    if digest:
        record.tags["data.md5"] = digest
    record.key = pipeline_key()
    log.info("%s: start", record.address)
    run = StageRun(record)
    try:
        yield run
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
        record.tags["failure"] = f"{type(error).__name__}: {error}"
        record.tags["failure.trace"] = traceback.format_exc()[-4000:]
        run.finish("KILLED" if interrupted else "FAILED")
        raise
    run.finish("FINISHED")
    record.save()
    numbers = ", ".join(f"{key} {value:g}" for key, value in list(record.metrics.items())[:6])
    log.info("%s: done in %.1f s%s", record.address, record.seconds, numbers and f"; {numbers}")
