"""A hyper-parameter search in MLflow: one run for the search, one below it per trial."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from coattail.tracking.origin import made_now
from coattail.tracking.record import Point, now
from coattail.tracking.store import Store, outages

log = logging.getLogger("coattail")
T = TypeVar("T")


class Search:
    """The runs of one search. A store that is away stops nothing: Optuna's file has the results."""

    def __init__(self, dataset: str, variant: str, facts: Mapping[str, str]) -> None:
        self.variant, self._store = variant, self._try(lambda: Store(dataset))
        self._dataset = dataset
        self._tags = made_now(dataset) | {"variant": variant, **facts}
        self.run_id: str | None = None

    def open(self, run_id: str | None, params: Mapping[str, Any]) -> None:
        """Go on with the run of an earlier session, or make one."""
        store = self._store
        if store is None:
            return
        if run_id and self._try(lambda: store.knows(run_id)):
            self.run_id = run_id
            self._try(lambda: store.client.update_run(run_id, status="RUNNING"))
            return
        self.run_id = self._try(lambda: self._create(f"tune-{self.variant}", "tune", None, params))

    def trial(self, number: int, params: Mapping[str, Any]) -> str | None:
        """The run of a trial that begins."""
        name = f"{self.variant}-trial-{number:03d}"
        return self._try(lambda: self._create(name, "trial", self.run_id, params))

    def points(self, run_id: str | None, points: list[Point]) -> None:
        """Numbers along the way."""
        store = self._store
        if store and run_id and points:
            self._try(lambda: store.metrics(run_id, points))

    def end(
        self,
        run_id: str | None,
        status: str,
        metrics: Mapping[str, float],
        tags: Mapping[str, str],
    ) -> None:
        """Close the run of a trial or of the search."""
        store, time = self._store, now()
        if not store or not run_id:
            return
        rounded = [Point(key, round(value, 2), 0, time) for key, value in metrics.items()]

        def close() -> None:
            store.metrics(run_id, rounded)
            store.tags(run_id, dict(tags))
            store.finish(run_id, status)

        self._try(close)

    def _create(
        self, name: str, kind: str, parent: str | None, params: Mapping[str, Any]
    ) -> str | None:
        store = self._store
        if store is None or (kind == "trial" and parent is None):
            return None
        source = {"dvc.stage": "coattail tune"}  # what the column Source shows
        run_id = store.create(name, kind, parent, self._tags | source)
        store.params(run_id, dict(params))
        if "data.md5" in self._tags:
            store.dataset(run_id, self._dataset, self._tags["data.md5"])
        return run_id

    def _try(self, action: Callable[[], T]) -> T | None:
        try:
            return action()
        except outages() as error:
            reason = str(error).strip().split("\n")[0][:300]
            log.warning("tune: not shown in MLflow (%s)", reason)
            self._store = None
            return None
