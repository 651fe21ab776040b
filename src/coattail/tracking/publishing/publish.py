"""The leaf of the pipeline in MLflow: a complete parent, one comparable run per candidate."""

from __future__ import annotations

import logging
import socket
import tempfile
from pathlib import Path
from typing import Any

from coattail.tracking import executions, outbox
from coattail.tracking.delivery import complete
from coattail.tracking.origin import PATCH, STAGE, made_now, stage_origin
from coattail.tracking.publishing import (
    candidate_runs,
    experiment_page,
    page_values,
    registered_model,
)
from coattail.tracking.publishing.shown import Shown
from coattail.tracking.record import Point, RunRecord
from coattail.tracking.store import (
    KIND,
    LINK,
    RESULT,
    UID,
    Store,
    parent_name,
    pipeline_key,
    user_name,
)

log = logging.getLogger("coattail")

NAMED = 3
"""How many new candidates the name of a parent lists."""


def publish(store: Store, shown: Shown, key: str | None = None) -> dict[str, Any]:
    """Fill the parent, add the candidates that are new, close the parent; return ids.

    What an earlier try or anybody else has shown is not shown again: the parent names its run.
    """
    key = key or pipeline_key()
    tags = shown.made or made_now(shown.dataset)
    parent = store.parent(tags, shown.params, key)
    store.params(parent, shown.params)
    if "data.md5" in tags:
        store.dataset(parent, shown.dataset, tags["data.md5"])
    if shown.patch:
        _show_patch(store, parent, shown.patch)
    stages = _show_stages(store, parent, shown.records, key)
    sources = {address: source for address, (source, _) in stages.items()}
    origins = {
        f"{STAGE}{shown.records[address].name}": stage_origin(shown.records[address], *one)
        for address, one in stages.items()
    }
    found = {
        name: candidate_runs.show(store, parent, shown, name, tags, origins)
        for name in shown.candidates
    }
    runs = {name: run_id for name, (run_id, _) in found.items()}
    new = [name for name, (_, is_new) in found.items() if is_new]
    best = shown.metrics[shown.best]
    main = shown.headline or tuple(best)
    store.metrics(
        parent, page_values.points({f"best/{key}": best[key] for key in main if key in best})
    )
    _show_files(store, parent, shown)
    experiment_page.describe(store, main, shown.best_by)
    version = registered_model.register(store, shown, runs[shown.best], parent, tags)
    note = experiment_page.links(store, parent, shown) + registered_model.chosen(shown) + shown.note
    ends = {"best": shown.best, "failure": "", RESULT: shown.result, experiment_page.NOTE: note}
    store.tags(parent, ends | {f"{LINK}{name}": run_id for name, run_id in runs.items()})
    close_stages(store, parent)
    _name(store, parent, tags, new)
    store.finish(parent, "FINISHED")
    executed = sorted(a for a, source in sources.items() if source == "executed")
    log.info(
        "published: %d stages (%d executed, %d cached), %d candidates (%d new), best %s",
        *(len(sources), len(executed), len(sources) - len(executed), len(runs), len(new)),
        shown.best,
    )
    return {
        "key": key,
        "made": tags,
        "parent_run_id": parent,
        "experiment": shown.dataset,
        "best": shown.best,
        "registered_version": version or None,
        "candidates": runs,
        "stages": sources,
    }


def _show_patch(store: Store, parent: str, patch: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / Path(PATCH).name
        path.write_bytes(patch)
        store.client.log_artifact(parent, str(path), Path(PATCH).parent.name)


def _name(store: Store, parent: str, tags: dict[str, str], new: list[str]) -> None:
    """Say in a parent's name what it brought, so that two of one commit differ."""
    if "dvc.experiment" in tags:
        return  # it has a name that somebody gave it
    listed = new[:NAMED] + ([f"{len(new) - NAMED} more"] if len(new) > NAMED else [])
    store.client.update_run(parent, name=f"{parent_name(tags)}: {', '.join(listed) or 'no news'}")


def _show_files(store: Store, parent: str, shown: Shown) -> None:
    """The report, tables and pictures, each under a folder that says what it is."""
    for folder, paths in shown.files.items():
        for path in paths:
            if path.suffix == ".html":
                page = executions.fill(path.read_text(encoding="utf-8"), shown.records)
                store.client.log_text(parent, page, f"{folder}/{path.name}")
            else:
                store.client.log_artifact(parent, str(path), folder)
    page_values.show_pictures(store, parent, shown)


def _show_stages(
    store: Store, parent: str, records: dict[str, RunRecord], key: str
) -> dict[str, tuple[str, str]]:
    """Copy the stages' metrics to the parent; by address: executed now or cached, and its run."""
    found: dict[str, tuple[str, str]] = {}
    points: list[Point] = []
    tags: dict[str, str] = {}
    known = store.runs(record.run_id for record in records.values())
    for address, record in records.items():
        run_id, under = complete(store, record, parent, known)
        # Without a store a stage knew no parent; its run was made later and only the key tells.
        ours = record.key == key if record.parent_run_id is None else record.parent_run_id == parent
        source = "executed" if ours and under == parent else "cached"
        points += page_values.points({f"{record.name}/{k}": v for k, v in record.metrics.items()})
        tags |= {f"stage.{record.name}": source, f"stage.{record.name}.run_id": run_id}
        found[address] = source, run_id
    store.metrics(parent, points)
    store.tags(parent, tags)
    return found


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
