"""Runs from somebody else's MLflow store, taken in once so that they compare with ours."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coattail.config import suggestion
from coattail.errors import ConfigError, TrackingError
from coattail.progress import progress
from coattail.tracking.record import Point
from coattail.tracking.store import KIND, LINK, Store, outages, without_password

ORIGIN = "coattail.imported"
"""Tag of an imported run: the store, experiment and run it was taken from."""

RULE = re.compile(r"^(?P<theirs>[^=]+)=(?P<ours>[^=*]+?)(?:\*(?P<factor>[0-9.eE+-]+))?$")


@dataclass(frozen=True)
class Rule:
    """How one metric of theirs is called here, and what it is multiplied by."""

    theirs: str
    ours: str
    factor: float = 1.0


def rules(texts: Iterable[str]) -> list[Rule]:
    """``prec1=p_at_1`` or, for fractions that are percent here, ``prec1=p_at_1*100``."""
    found = []
    for text in texts:
        match = RULE.match(text.strip())
        try:
            if match is None:
                raise ValueError
            factor = float(match["factor"] or 1)
        except ValueError:
            raise ConfigError(f"--map {text}: wanted theirs=ours or theirs=ours*100") from None
        found.append(Rule(match["theirs"].strip(), match["ours"].strip(), factor))
    return found


def import_runs(store: Store, uri: str, experiment: str, mapping: list[Rule]) -> tuple[int, int]:
    """Copy params and last metrics of every finished run; return how many are new and how many old.

    Metrics without a rule keep their name. An imported run is shown like a candidate, with the
    family ``imported`` and a tag that says where it came from; that tag keeps it from coming twice.
    """
    theirs, runs = _read(uri, experiment)
    known = {name for run in runs for name in run.data.metrics}
    for rule in mapping:
        if rule.theirs not in known:
            raise ConfigError(
                f"--map {rule.theirs}={rule.ours}: no run of {experiment} has a metric "
                f"{rule.theirs!r}{suggestion(rule.theirs, sorted(known))}"
            )
    there = {
        run.data.tags[ORIGIN]
        for run in store.search(f"tags.`{KIND}` = 'candidate'", "tags.family = 'imported'")
        if run.info.status == "FINISHED"
    }
    new = 0
    for run in runs:
        origin = f"{without_password(uri)} {theirs.experiment_id} {run.info.run_id}"
        if origin not in there:
            _copy(store, run, origin, mapping)
            new += 1
    return new, len(runs) - new


def _read(uri: str, experiment: str) -> tuple[Any, list[Any]]:
    from mlflow import MlflowClient

    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        raise TrackingError(f"{uri}: there is no such file")  # MLflow would make an empty one
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # many old experiments are folders
    try:
        client = MlflowClient(uri)
        found = client.get_experiment_by_name(experiment)
        names = [one.name for one in client.search_experiments()] if found is None else []
        runs: list[Any] = []
        token = None
        while found is not None:
            page = client.search_runs(
                [found.experiment_id],
                "attributes.status = 'FINISHED'",
                max_results=1000,
                page_token=token,
            )
            runs += page
            token = page.token
            if not token:
                break
    except outages() as error:
        reason = str(error).strip().split("\n")[0][:300]
        raise TrackingError(f"{without_password(uri)} cannot be read: {reason}") from None
    if found is None:
        near = suggestion(experiment, names)
        raise TrackingError(f"{without_password(uri)} has no experiment {experiment!r}{near}")
    return found, runs


def _copy(store: Store, run: Any, origin: str, mapping: list[Rule]) -> None:
    for half in store.search(f"tags.`{ORIGIN}` = '{origin}'"):  # an import that was cut off
        store.client.delete_run(half.info.run_id)
    theirs = run.data.tags
    tags = {
        ORIGIN: origin,
        "family": "imported",
        "tail_methods": theirs.get("tail_methods", "unknown"),
        "imported.user": theirs.get("mlflow.user", ""),
        "imported.commit": theirs.get("mlflow.source.git.commit", ""),
    }
    name = str(run.info.run_name or run.info.run_id)
    run_id = store.create(name, "candidate", None, tags, run.info.start_time)
    store.params(run_id, dict(run.data.params) | {"candidate": name})
    by_name = {rule.theirs: rule for rule in mapping}
    points = []
    for key, value in run.data.metrics.items():
        rule = by_name.get(key, Rule(key, key))
        points.append(Point(rule.ours, value * rule.factor, 0, run.info.end_time or 0))
    store.metrics(run_id, points)
    store.finish(run_id, "FINISHED", run.info.end_time)


HISTORIES = ("stage", "trial")
"""Kinds of runs whose metrics have more than one point."""
THREADS = 8


def dump(store: Store, parent: str) -> list[dict[str, Any]]:
    """A pipeline run, its candidates and everything under it as plain values, all points."""
    top = store.client.get_run(parent)
    runs = {run.info.run_id: run for run in store.search(f"tags.`mlflow.parentRunId` = '{parent}'")}
    linked = [value for key, value in top.data.tags.items() if key.startswith(LINK)]
    runs |= {one: store.client.get_run(one) for one in linked if one not in runs}
    with progress("export", 1 + len(runs), "runs") as bar, ThreadPoolExecutor(THREADS) as pool:
        dumped = []
        for one in pool.map(lambda run: _dumped(store, run), [top, *runs.values()]):
            dumped.append(one)
            bar.advance()
    return dumped


def _dumped(store: Store, run: Any) -> dict[str, Any]:
    return {
        "run_id": run.info.run_id,
        "name": run.info.run_name,
        "status": run.info.status,
        "started": run.info.start_time,
        "ended": run.info.end_time,
        "params": dict(sorted(run.data.params.items())),
        "tags": dict(sorted(run.data.tags.items())),
        "metrics": {key: _history(store, run, key) for key in sorted(run.data.metrics)},
    }


def _history(store: Store, run: Any, key: str) -> list[list[float]]:
    """Points of a metric. Only stages have several, and asking for each takes its time."""
    if run.data.tags.get(KIND) not in HISTORIES:
        return [[run.data.metrics[key], 0, run.info.end_time or 0]]
    points = store.client.get_metric_history(run.info.run_id, key)
    return [[point.value, point.step, point.timestamp] for point in points]
