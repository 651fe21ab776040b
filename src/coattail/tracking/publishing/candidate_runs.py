"""One run per result: a candidate that anybody has shown already is not shown again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coattail.pipeline.registry import MAKES_THE_DATA
from coattail.pipeline.stage_result import flatten
from coattail.tracking.origin import FOUND_BY, STAGE, found_by
from coattail.tracking.publishing import experiment_page, page_values
from coattail.tracking.publishing.shown import Shown
from coattail.tracking.record import RunRecord
from coattail.tracking.store import KIND, RESULT, Store

NOISE = ("machine.", "version.")
"""Tags of the parent and of stages that would only hide a candidate's own."""
AUTHOR = "author"
"""Tag: who computed the last stage of it."""
ALSO = "also_by"
"""Tag: who else has the same result."""


def show(
    store: Store,
    parent: str,
    shown: Shown,
    name: str,
    tags: dict[str, str],
    origins: dict[str, str],
) -> tuple[str, bool]:
    """The run of a candidate and whether it is new; made if nobody has shown this result."""
    result = shown.result_of(name)
    found = store.search(f"tags.`{RESULT}` = '{result}'", f"tags.`{KIND}` = 'candidate'")
    finished = [run for run in found if run.info.status == "FINISHED"]
    if finished:
        _note_who_else(store, finished[-1], shown, name, tags["user"])
        return str(finished[-1].info.run_id), False
    made = [shown.records[address] for address in shown.candidates[name].made_by]
    if found:  # somebody was cut off; what is there is not doubled
        run_id = str(found[-1].info.run_id)
    else:
        facts = _facts(store, parent, shown, name, tags, origins) | {RESULT: result}
        run_id = store.create(name, "candidate", parent, facts, made[-1].started)
    _fill(store, run_id, shown, name, made, tags)
    store.finish(run_id, "FINISHED", made[-1].ended)
    return run_id, True


def _note_who_else(store: Store, run: Any, shown: Shown, name: str, who: str) -> None:
    """Another person with the same result is a tag, and so is a later choice as the champion."""
    there = run.data.tags
    others = [one for one in there.get(ALSO, "").split(", ") if one]
    new = {}
    if who not in (there.get(AUTHOR), *others):
        new[ALSO] = ", ".join([*others, who])
    if name == shown.best and there.get("is_best") != "true":
        new["is_best"] = "true"
    if new:
        store.tags(run.info.run_id, new)
    if name == shown.best and shown.log_model and not _has_model(store, run.info.run_id):
        log_model(store, shown.log_model, run.info.run_id, name)
        store.finish(run.info.run_id, "FINISHED", run.info.end_time)


def _facts(
    store: Store,
    parent: str,
    shown: Shown,
    name: str,
    tags: dict[str, str],
    origins: dict[str, str],
) -> dict[str, str]:
    """Tags of a candidate's run."""
    candidate = shown.candidates[name]
    made = [shown.records[address] for address in candidate.made_by]
    author = made[-1].tags.get("user") or tags["user"]
    facts = {key: value for key, value in tags.items() if not key.startswith(NOISE)}
    facts |= {
        "pipeline": str(store.client.get_run(parent).info.run_name),
        experiment_page.NOTE: experiment_page.links(store, parent, shown)
        + shown.notes.get(name, ""),
        "family": candidate.family,
        "tail_methods": ", ".join(candidate.tail_methods) or "none",
        "made_by": ", ".join(candidate.made_by),
        "is_best": str(name == shown.best).lower(),
        "user": author,
        AUTHOR: author,
    }
    names = {record.name for record in made}
    facts |= {key: one for key, one in origins.items() if key.removeprefix(STAGE) in names}
    device = next((r.tags["device"] for r in reversed(made) if "device" in r.tags), None)
    facts |= {FOUND_BY: found_by(facts)}
    return facts | ({"device": device} if device else {})


def _fill(
    store: Store,
    run_id: str,
    shown: Shown,
    name: str,
    made: list[RunRecord],
    tags: dict[str, str],
) -> None:
    store.params(run_id, {"candidate": name} | _made_params(made))
    own = [one for one in made if one.stage not in MAKES_THE_DATA]  # its time is the dataset's
    seconds = {"train_seconds": sum(record.seconds for record in own)}
    known = all(record.known for record in own)
    values = shown.metrics[name] | (seconds if known else {})
    store.metrics(run_id, page_values.points(values, made[-1].ended))
    page_values.show_pictures(store, run_id, shown, name)
    if "data.md5" in tags:
        store.dataset(run_id, shown.dataset, tags["data.md5"])
    if shown.log_model and not _has_model(store, run_id):
        log_model(store, shown.log_model, run_id, name)


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


def models_of(store: Store, run_id: str) -> list[str]:
    """Ids of the models that were logged into a run."""
    outputs = store.client.get_run(run_id).outputs
    return [str(one.model_id) for one in outputs.model_outputs] if outputs else []


def _has_model(store: Store, run_id: str) -> bool:
    return bool(models_of(store, run_id))


def log_model(store: Store, log: Callable[[str], str | None], run_id: str, name: str) -> None:
    """Log a candidate's model into its run, which is open afterwards."""
    import mlflow

    mlflow.set_tracking_uri(store.uri)
    with mlflow.start_run(run_id=run_id):
        log(name)
    store.client.update_run(run_id, status="RUNNING")
