"""Test metrics of candidates as MLflow runs hold them, for `coattail compare`."""

from __future__ import annotations

import re
from typing import Any

from coattail.errors import TrackingError
from coattail.tracking.store import KIND, LINK, Store, dataset_name, open_store, unused

RUN_ID = re.compile(r"[0-9a-f]{32}")
OWN = ("train_seconds",)
"""Metrics of a candidate's run that `evaluate` did not make."""


def results(run_id: str) -> tuple[str, dict[str, dict[str, float]]] | None:
    """Name of a parent's or candidate's run and, by candidate, its metrics; None: no such run."""
    run = run_of(run_id)
    if run is None:
        return None
    kind = run.data.tags.get(KIND, "unknown")
    if kind == "candidate":
        return str(run.info.run_name), {str(run.info.run_name): _metrics(run)}
    if kind == "parent":
        return str(run.info.run_name), _of_parent(open_store(dataset_name()), run)
    parent = run.data.tags.get("mlflow.parentRunId")
    hint = f"; its parent is {parent}" if parent and kind == "stage" else ""
    judged = " and was judged on validation, not on test" if kind in ("trial", "tune") else ""
    raise TrackingError(
        f"MLflow run {run_id} ({run.info.run_name}) is a {kind} run{judged}; "
        f"wanted a parent or a candidate{hint}"
    )


def run_of(run_id: str) -> Any | None:
    """A run of this project's store, if it is there."""
    return None if unused() else open_store(dataset_name()).run(run_id)


def _of_parent(store: Store, parent: Any) -> dict[str, dict[str, float]]:
    found = store.client.search_runs(
        [parent.info.experiment_id],
        f"tags.`mlflow.parentRunId` = '{parent.info.run_id}' and tags.`{KIND}` = 'candidate'",
        order_by=["attributes.start_time ASC"],
        max_results=1000,
    )
    runs = {run.info.run_id: run for run in found}
    # Candidates that somebody had shown before are named by tags.
    linked = [v for key, v in parent.data.tags.items() if key.startswith(LINK)]
    runs |= {one: store.client.get_run(one) for one in linked if one not in runs}
    return {str(run.info.run_name): _metrics(run) for run in runs.values()}


def _metrics(run: Any) -> dict[str, float]:
    return {name: value for name, value in run.data.metrics.items() if name not in OWN}
