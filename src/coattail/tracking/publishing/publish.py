"""The leaf of the pipeline in MLflow: a complete parent, one comparable run per candidate."""

from __future__ import annotations

import logging
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coattail.pipeline.candidates import Candidate
from coattail.pipeline.registry import MAKES_THE_DATA
from coattail.pipeline.stage_result import flatten
from coattail.tracking import executions, outbox
from coattail.tracking.delivery import complete
from coattail.tracking.origin import STAGE, made_now, stage_origin
from coattail.tracking.publishing import experiment_page
from coattail.tracking.publishing.pictures import Pictures
from coattail.tracking.record import Point, RunRecord, git_edits, now
from coattail.tracking.store import KIND, RESULT, UID, Store, insist, pipeline_key, user_name

log = logging.getLogger("coattail")

ALIAS = "champion"
REPORT, PICTURES = "report", "pictures"
NOISE = ("machine.", "version.")
"""Tags of the parent and of stages that would only hide a candidate's own."""


@dataclass(frozen=True)
class Shown:
    """Everything the window shows of one pipeline execution."""

    dataset: str
    params: dict[str, Any]
    records: dict[str, RunRecord]  # by address
    candidates: dict[str, Candidate]
    metrics: dict[str, dict[str, float]]  # by candidate
    best: str  # the champion
    reason: str = ""  # why it is
    warnings: tuple[str, ...] = ()  # what speaks against it
    facts: dict[str, str] = field(default_factory=dict)  # both in pieces: tags of its version
    note: str = ""  # Markdown that MLflow shows as the parent's description
    notes: dict[str, str] = field(default_factory=dict)  # the same for candidates
    headline: tuple[str, ...] = ()  # metrics people compare by: columns of MLflow's pages
    best_by: str = "psp_at_5"
    files: dict[str, list[Path]] = field(default_factory=dict)  # artifacts of the parent by folder
    pictures: Callable[[str | None], Pictures] | None = None  # of a candidate, None: of all
    log_model: Callable[[str], str | None] | None = None  # logs into the active run: its address
    made: dict[str, str] | None = (
        None  # machine and git state it was made with, if not here and now
    )
    result: str = ""  # md5 of data/published.json, the name of these results in any store


def publish(store: Store, shown: Shown, key: str | None = None) -> dict[str, Any]:
    """Fill the parent, add the candidates' runs, close the parent; return ids and circumstances.

    What an earlier try has shown under an unfinished parent is not shown again.
    """
    key = key or pipeline_key()
    tags = shown.made or made_now(shown.dataset)
    parent = store.parent(tags, shown.params, key)
    store.params(parent, shown.params)
    if "data.md5" in tags:
        store.dataset(parent, shown.dataset, tags["data.md5"])
    if tags.get("git.dirty") == "true" and not shown.made:
        store.client.log_text(parent, git_edits(), "lineage/uncommitted.patch")
    shown_stages = {
        address: _show_stage(store, parent, record, key)
        for address, record in shown.records.items()
    }
    sources = {address: source for address, (source, _) in shown_stages.items()}
    origins = {
        f"{STAGE}{shown.records[address].name}": stage_origin(shown.records[address], *one)
        for address, one in shown_stages.items()
    }
    runs = {
        name: _show_candidate(store, parent, shown, name, tags, origins)
        for name in shown.candidates
    }
    best = shown.metrics[shown.best]
    main = shown.headline or tuple(best)
    store.metrics(parent, _points({f"best/{key}": best[key] for key in main if key in best}))
    _show_files(store, parent, shown)
    experiment_page.describe(store, main, shown.best_by)
    version = _register(store, shown, runs[shown.best])
    note = _links(store, parent, shown) + _chosen(shown) + shown.note
    ends = {"best": shown.best, "failure": "", RESULT: shown.result}
    store.tags(parent, ends | {experiment_page.NOTE: note})
    close_stages(store, parent)
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
        "key": key,
        "made": tags,
        "parent_run_id": parent,
        "experiment": shown.dataset,
        "best": shown.best,
        "registered_version": version,
        "candidates": runs,
        "stages": sources,
    }


def _show_files(store: Store, run_id: str, shown: Shown, candidate: str | None = None) -> None:
    """The report, tables and pictures, each under a folder that says what it is."""
    for folder, paths in shown.files.items() if candidate is None else ():
        for path in paths:
            if path.suffix == ".html":
                page = executions.fill(path.read_text(encoding="utf-8"), shown.records)
                store.client.log_text(run_id, page, f"{folder}/{path.name}")
            else:
                store.client.log_artifact(run_id, str(path), folder)
    with tempfile.TemporaryDirectory() as place:
        for name, content in (shown.pictures(candidate) if shown.pictures else {}).items():
            path = Path(place) / name
            path.write_bytes(content)
            store.client.log_artifact(run_id, str(path), PICTURES)


def _links(store: Store, parent: str, shown: Shown) -> str:
    """Where to go from a run, as the first line of its description."""
    reports = [path.name for path in shown.files.get(REPORT, []) if path.suffix == ".html"]
    links = [
        f"[{name}]({experiment_page.run(store, parent, f'{REPORT}/{name}')})" for name in reports
    ]
    return " · ".join([*links, f"[candidates]({experiment_page.candidates(store)})"]) + "\n\n"


def _chosen(shown: Shown) -> str:
    """The champion and why, as Markdown."""
    lines = [f"Champion: {shown.reason}"] if shown.reason else []
    lines += [f"**{warning}**" for warning in shown.warnings]
    return "".join(f"{line}\n\n" for line in lines)


def _show_stage(store: Store, parent: str, record: RunRecord, key: str) -> tuple[str, str]:
    """Copy a stage's metrics to the parent; say whether it ran now or came from a cache."""
    run_id, under = complete(store, record, parent)
    # Without a store a stage knew no parent; its run was made later and only the key tells.
    ours = record.key == key if record.parent_run_id is None else record.parent_run_id == parent
    source = "executed" if ours and under == parent else "cached"
    named = {f"{record.name}/{key}": value for key, value in record.metrics.items()}
    store.metrics(parent, _points(named))
    store.tags(parent, {f"stage.{record.name}": source, f"stage.{record.name}.run_id": run_id})
    return source, run_id


def _show_candidate(
    store: Store,
    parent: str,
    shown: Shown,
    name: str,
    tags: dict[str, str],
    origins: dict[str, str],
) -> str:
    there = _candidate_run(store, parent, name)
    if there:
        return there
    candidate = shown.candidates[name]
    made = [shown.records[address] for address in candidate.made_by]
    facts = {key: value for key, value in tags.items() if not key.startswith(NOISE)}
    facts |= {
        "pipeline": str(store.client.get_run(parent).info.run_name),
        experiment_page.NOTE: _links(store, parent, shown) + shown.notes.get(name, ""),
        "family": candidate.family,
        "tail_methods": ", ".join(candidate.tail_methods) or "none",
        "made_by": ", ".join(candidate.made_by),
        "is_best": str(name == shown.best).lower(),
    }
    facts |= {
        key: origin
        for key, origin in origins.items()
        if key.removeprefix(STAGE) in {record.name for record in made}
    }
    device = next((r.tags["device"] for r in reversed(made) if "device" in r.tags), None)
    if device:
        facts["device"] = device
    run_id = store.create(name, "candidate", parent, facts, made[-1].started)
    store.params(run_id, {"candidate": name} | _made_params(made))
    own = [
        record for record in made if record.stage not in MAKES_THE_DATA
    ]  # their time is the dataset's
    seconds = {"train_seconds": sum(record.seconds for record in own)}
    known = all(record.known for record in own)
    store.metrics(run_id, _points(shown.metrics[name] | (seconds if known else {})))
    _show_files(store, run_id, shown, name)
    if "data.md5" in tags:
        store.dataset(run_id, shown.dataset, tags["data.md5"])
    if shown.log_model:
        _log_model(store, shown.log_model, run_id, name)
    store.finish(run_id, "FINISHED", made[-1].ended)
    return run_id


def _candidate_run(store: Store, parent: str, name: str) -> str | None:
    """A candidate that an interrupted publish has shown in full; what it left half is removed."""
    found = store.search(f"tags.`mlflow.parentRunId` = '{parent}'", f"tags.`{KIND}` = 'candidate'")
    whole = None
    for run in found:
        if run.info.run_name == name and run.info.status == "FINISHED":
            whole = str(run.info.run_id)
        elif run.info.run_name == name:
            store.client.delete_run(run.info.run_id)
    return whole


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
    """The champion's model as a new version of ``coattail-<dataset>``, with why it is one."""
    if shown.log_model is None:
        return None
    from mlflow.exceptions import MlflowException

    outputs = store.client.get_run(run_id).outputs
    models = outputs.model_outputs if outputs else []
    if not models:
        return None
    name = f"coattail-{shown.dataset}"
    before = store.client.search_model_versions(f"run_id = '{run_id}'")
    if before:  # an interrupted publish came as far as this
        _name_best(store, name, before[0].version)
        return str(before[0].version)
    try:
        store.client.create_registered_model(name, description=_how_to_load(name, shown))
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    version = store.client.create_model_version(
        name,
        f"models:/{models[0].model_id}",
        run_id,
        tags={"candidate": shown.best} | shown.facts,
        description=_chosen(shown),
        model_id=models[0].model_id,
    ).version
    _name_best(store, name, version)
    return str(version)


def _how_to_load(name: str, shown: Shown) -> str:
    return (
        f"Tags texts with labels of {shown.dataset}. Versions are the champions of runs of the "
        f"pipeline, chosen on validation; `{ALIAS}` is the last one.\n\n"
        f"    mlflow.pyfunc.load_model('models:/{name}@{ALIAS}')\n"
    )


def _name_best(store: Store, model: str, version: str) -> None:
    insist(lambda: store.client.set_registered_model_alias(model, ALIAS, version))


def _points(values: dict[str, float]) -> list[Point]:
    time = now()
    return [Point(key, _readable(float(value)), 0, time) for key, value in values.items()]


def _readable(value: float) -> float:
    """Two digits after the point, more where a number is small: no page rounds by itself."""
    return round(value, 2) if abs(value) >= 0.1 or value != value else float(f"{value:.2g}")


def open_parents(store: Store) -> list[Any]:
    """Parents still RUNNING of this user on this machine; others know best about theirs."""
    return store.search(
        f"tags.`{KIND}` = 'parent'",
        "attributes.status = 'RUNNING'",
        f"tags.`machine.host` = '{socket.gethostname()}'",
        f"tags.`mlflow.user` = '{user_name()}'",
    )


def close_stages(store: Store, parent: str) -> None:
    """Mark stages of a parent that were killed without a word, once nobody works on it."""
    at_work = {path.stem for path in outbox.running() if outbox.is_alive(path)}
    for run in store.search(
        f"tags.`mlflow.parentRunId` = '{parent}'",
        f"tags.`{KIND}` = 'stage'",
        "attributes.status = 'RUNNING'",
    ):
        if run.data.tags.get(UID) not in at_work:
            store.finish(run.info.run_id, "KILLED")
