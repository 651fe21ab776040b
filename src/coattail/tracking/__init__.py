"""The tie between DVC and MLflow; the only room that imports mlflow, and only when used.

Face: `stage` (in `__init__`), `journal`, `store.open_store`, `delivery`, `publishing`.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from coattail.config import Params
from coattail.pipeline import outputs
from coattail.pipeline.registry import MAKES_THE_DATA
from coattail.pipeline.stage_result import Logged
from coattail.tracking import journal
from coattail.tracking.line import Line
from coattail.tracking.record import Point, RunRecord, cpu_seconds, environment_tags, now
from coattail.tracking.store import RESULT, data_hash, dataset_name, pipeline_key, user_name
from coattail.tracking.trial_line import TrialLine

log = logging.getLogger("coattail")

FLUSH_SECONDS = 2.0


class StageRun:
    """What a stage script holds while it works: a place for numbers and facts."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        trial = TrialLine.asked(record)
        self.of_trial = trial is not None
        self._line: Line | TrialLine = trial or Line(record)
        self._line.start()
        self._flushed = time.monotonic()

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Numbers along the way (loss, validation figures); they reach MLflow within seconds."""
        time_now = now()
        self.record.history += [Point(k, float(v), step, time_now) for k, v in values.items()]
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def metrics(self, values: Mapping[str, float]) -> None:
        """Final numbers of the stage."""
        self.record.metrics.update({key: float(value) for key, value in values.items()})

    def found(self, **facts: object) -> None:
        """What the computation itself decided: the calibration it chose."""
        self.record.facts.update({key: str(value) for key, value in facts.items()})

    def note(self, **facts: object) -> None:
        """Circumstances a reader will ask for: the device it ran on."""
        self.record.tags.update({key: str(value) for key, value in facts.items()})

    @property
    def computed(self) -> list[Logged]:
        """The numbers logged so far, without speeds: the same training gives the same again."""
        return self.record.result().history

    def flush(self) -> None:
        self._flushed = time.monotonic()
        self._line.send()

    def finish(self, status: str) -> None:
        """End the run, here and in MLflow; what was computed enters the journal."""
        record = self.record
        record.status, record.ended = status, now()
        record.tags |= record.facts
        record.metrics.setdefault("seconds", record.seconds)
        record.metrics.setdefault("cpu_seconds", cpu_seconds())
        if status == "FINISHED" and not self.of_trial:
            journal.keep(record)  # first, for the courier notes there where it has shown the run
        self._line.close()


@contextmanager
def stage(name: str, variant: str | None, params: Params | None) -> Iterator[StageRun]:
    """Run a stage's body as one MLflow run under the pipeline's parent; leave its result.

    An error or an interrupt is shown on the run with its reason and raised again; the result is
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
    # While stages that make the data run, dvc.lock has the md5 of the data before.
    if digest and name not in MAKES_THE_DATA:
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
    written = {path: Path(path) for path in outputs.declared(name, variant)}
    record.outs = {path: outputs.md5(p) for path, p in written.items() if p.exists()}
    result = record.result()
    record.tags[RESULT] = result.md5
    run.finish("FINISHED")
    result.save()
    numbers = ", ".join(f"{key} {value:g}" for key, value in list(record.metrics.items())[:6])
    log.info("%s: done in %.1f s%s", record.address, record.seconds, numbers and f"; {numbers}")
