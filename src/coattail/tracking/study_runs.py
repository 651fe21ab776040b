"""A study in MLflow: one parent over the stages of all its rows, and a run per row."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from coattail.tracking.origin import made_now
from coattail.tracking.record import Point, git, now
from coattail.tracking.store import Store, experiment_key, outages

log = logging.getLogger("coattail")
T = TypeVar("T")
KIND = "study row"


class StudyRuns:
    """The runs of one study. A store that is away stops nothing: studies/*.json has the results."""

    def __init__(self, study: str, dataset: str, facts: Mapping[str, Any]) -> None:
        self.name, self.commit = f"study-{study}", git("rev-parse", "HEAD") or "none"
        self._tags = made_now(dataset) | {"study": study, "dvc.stage": "coattail study run"}
        self._store = self._try(lambda: Store(dataset))
        self._parent = self._try(lambda: self._open(facts))

    @property
    def environment(self) -> dict[str, str]:
        """What puts the stages of a row under the parent: a study is an experiment by name."""
        return {"DVC_EXP_NAME": self.name, "DVC_EXP_BASELINE_REV": self.commit}

    def _open(self, facts: Mapping[str, Any]) -> str | None:
        if self._store is None:
            return None
        key = experiment_key(self.name, self.commit)
        return self._store.parent(self._tags | {"dvc.experiment": self.name}, dict(facts), key)

    def row(self, name: str, params: Mapping[str, Any], figures: Mapping[str, float]) -> None:
        """Show a row that is done, at one seed."""
        self._try(lambda: self._row(name, params, figures))

    def _row(self, name: str, params: Mapping[str, Any], figures: Mapping[str, float]) -> None:
        store = self._store
        if store is None or self._parent is None:
            return
        run_id = store.create(name, KIND, self._parent, self._tags)
        store.params(run_id, dict(params))
        store.metrics(run_id, [Point(key, round(v, 2), 0, now()) for key, v in figures.items()])
        store.finish(run_id, "FINISHED")

    def end(self, status: str, verdicts: Mapping[str, str]) -> None:
        """Close the parent, with the verdicts as tags."""

        def close() -> None:
            if self._store is not None and self._parent is not None:
                self._store.tags(self._parent, dict(verdicts))
                self._store.finish(self._parent, status)

        self._try(close)

    def _try(self, action: Callable[[], T]) -> T | None:
        try:
            return action()
        except outages() as error:
            reason = str(error).strip().split("\n")[0][:300]
            log.warning("study: not shown in MLflow (%s)", reason)
            self._store = None
            return None
