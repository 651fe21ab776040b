"""The leaf of the pipeline in MLflow: a complete parent, one comparable run per candidate."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coattail.pipeline import Candidate
from coattail.tracking.record import Point, RunRecord, environment_tags, flatten, now
from coattail.tracking.store import KIND, Store, data_hash

log = logging.getLogger("coattail")

ALIAS = "champion"


@dataclass(frozen=True)
class Shown:
    """Everything the window shows of one pipeline execution."""

    dataset: str
    params: dict[str, Any]
    records: dict[str, RunRecord]  # by address
    candidates: dict[str, Candidate]
    metrics: dict[str, dict[str, float]]  # by candidate
    best: str
    note: str = ""  # Markdown that MLflow shows as the parent's description
    files: list[Path] = field(default_factory=list)  # pictures and tables for the parent
    log_model: Callable[[str], str | None] | None = None  # logs into the active run: its address


def publish(store: Store, shown: Shown, key: str | None = None) -> dict[str, Any]:
    """Fill the parent, add the candidates' runs, close the parent; return the ids."""
    tags = environment_tags() | {"dataset": shown.dataset}
    digest = data_hash()
    if digest:
        tags["data.md5"] = digest
    parent = store.parent(tags, shown.params, key)
    if digest:
        store.dataset(parent, shown.dataset, digest)
    sources = {
        address: _show_stage(store, parent, record) for address, record in shown.records.items()
    }
    runs = {name: _show_candidate(store, parent, shown, name, tags) for name in shown.candidates}
    best = shown.metrics[shown.best]
    store.metrics(parent, _points({f"best/{key}": value for key, value in best.items()}))
    for path in shown.files:
        store.client.log_artifact(parent, str(path), "report")
    version = _register(store, shown, runs[shown.best])
    store.tags(parent, {"best": shown.best, "failure": "", "mlflow.note.content": shown.note})
    store.finish(parent, "FINISHED")
    executed = sorted(a for a, source in sources.items() if source == "executed")
    log.info(
        "published: %d stages (%d executed, %d cached), %d candidates, best %s",
        len(sources),
        len(executed),
        len(sources) - len(executed),
        len(runs),
        shown.best,
    )
    return {
        "parent_run_id": parent,
        "experiment": shown.dataset,
        "best": shown.best,
        "registered_version": version,
        "candidates": runs,
        "stages": sources,
    }


def _show_stage(store: Store, parent: str, record: RunRecord) -> str:
    """Copy a stage's metrics to the parent; say whether it ran now or came from a cache."""
    source = "executed" if record.parent_run_id == parent else "cached"
    run_id = record.run_id
    if run_id is None or not store.knows(run_id):
        run_id = store.replay(record, parent)
    named = {f"{record.name}/{key}": value for key, value in record.metrics.items()}
    store.metrics(parent, _points(named))
    store.tags(parent, {f"stage.{record.name}": source, f"stage.{record.name}.run_id": str(run_id)})
    return source


def _show_candidate(
    store: Store, parent: str, shown: Shown, name: str, tags: dict[str, str]
) -> str:
    candidate = shown.candidates[name]
    made = [shown.records[address] for address in candidate.made_by]
    facts = tags | {
        "family": candidate.family,
        "tail_methods": ", ".join(candidate.tail_methods) or "none",
        "made_by": ", ".join(candidate.made_by),
        "is_best": str(name == shown.best).lower(),
    }
    device = next((r.tags["device"] for r in reversed(made) if "device" in r.tags), None)
    if device:
        facts["device"] = device
    run_id = store.create(name, "candidate", parent, facts, made[-1].started)
    store.params(run_id, {"candidate": name, "dataset": shown.dataset} | _made_params(made))
    seconds = sum(record.seconds for record in made if record.stage not in SHARED)
    store.metrics(run_id, _points(shown.metrics[name] | {"train_seconds": seconds}))
    if "data.md5" in tags:
        store.dataset(run_id, shown.dataset, tags["data.md5"])
    if shown.log_model:
        _log_model(store, shown.log_model, run_id, name)
    store.finish(run_id, "FINISHED", max(record.ended for record in made))
    return run_id


SHARED = ("download", "preprocess")
"""Stages whose time belongs to the dataset, not to a candidate."""


def _made_params(made: list[RunRecord]) -> dict[str, Any]:
    """Params of every stage on the way, ``stage.key``; with its variant where two would clash."""
    merged: dict[str, Any] = {}
    for record in reversed(made):
        values = dict(flatten(record.params, f"{record.stage}."))
        clash = any(key in merged and merged[key] != value for key, value in values.items())
        if clash:
            values = dict(flatten(record.params, f"{record.stage}/{record.variant}."))
        merged |= values
    return merged


def _log_model(
    store: Store, log_model: Callable[[str], str | None], run_id: str, name: str
) -> None:
    import mlflow

    mlflow.set_tracking_uri(store.uri)
    with mlflow.start_run(run_id=run_id):
        log_model(name)
    store.client.update_run(run_id, status="RUNNING")


def _register(store: Store, shown: Shown, run_id: str) -> str | None:
    """The best candidate's model as a new version of ``coattail-<dataset>`` with the alias."""
    if shown.log_model is None:
        return None
    from mlflow.exceptions import MlflowException

    outputs = store.client.get_run(run_id).outputs
    models = outputs.model_outputs if outputs else []
    if not models:
        return None
    name = f"coattail-{shown.dataset}"
    try:
        store.client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    version = store.client.create_model_version(
        name,
        f"models:/{models[0].model_id}",
        run_id,
        tags={"candidate": shown.best},
        model_id=models[0].model_id,
    ).version
    store.client.set_registered_model_alias(name, ALIAS, version)
    return str(version)


def _points(values: dict[str, float]) -> list[Point]:
    time = now()
    return [Point(key, float(value), 0, time) for key, value in values.items()]


def open_parents(store: Store) -> list[Any]:
    """Parents that are still RUNNING; `coattail doctor` tells how to close them."""
    found = store.client.search_runs(
        [store.experiment_id], f"tags.`{KIND}` = 'parent' and attributes.status = 'RUNNING'"
    )
    return list(found)
