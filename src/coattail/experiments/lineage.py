"""`coattail model lineage`: from a model to commit, params, data, stages and machines, and back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from ruamel.yaml import YAML

from coattail.errors import ConfigError, TrackingError
from coattail.tracking.find_models import (
    candidates_found_by,
    model_run,
    versions_by_run,
    versions_of,
)
from coattail.tracking.origin import STAGE, locked_outs
from coattail.tracking.store import KIND, Store, dataset_name, open_store


@dataclass(frozen=True)
class Stage:
    """One stage that made a model, as its result and the journal told."""

    address: str  # train_linear@dismec
    source: str  # executed in this run of the pipeline, or cached: restored from a cache
    run_id: str
    host: str  # the machine that computed it
    commit: str
    dirty: str
    ended: int
    outs: dict[str, str]  # md5 by path
    experiment: str = ""  # DVC experiment it ran in
    device: str = ""
    user: str = "unknown"  # who computed it
    computed: str = ""  # its processor and what that was told


@dataclass(frozen=True)
class Lineage:
    """Everything that made one model."""

    candidate: str
    run_id: str
    parent_run_id: str
    versions: list[str]  # in the registry
    commit: str
    branch: str
    dirty: str  # true, false or unknown: whether the tree differed from the commit
    edits: str
    experiment: str  # DVC experiment, if it was one
    dataset: str
    data_md5: str
    host: str  # the machine of its last stage
    user: str
    ended: int
    params: dict[str, str]
    stages: list[Stage]

    def json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)


def of_model(name: str, store: Store | None = None) -> Lineage:
    """What made the model ``name`` (see find.model_run for the names it may have)."""
    store = store or open_store(dataset_name())
    run = model_run(store, name)
    kind = run.data.tags.get(KIND, "foreign")
    if kind != "candidate":
        hint = {
            "stage": f"models made with it: coattail model lineage --stage {run.info.run_id}",
            "parent": "name one of its candidates",
        }.get(kind, "wanted a run that coattail made")
        raise TrackingError(f"run {run.info.run_id} ({run.info.run_name}) is no model; {hint}")
    return _read(run, versions_of(store, run.info.run_id))


def _read(run: Any, versions: list[str]) -> Lineage:
    tags = run.data.tags
    stages = [Stage(**json.loads(value)) for key, value in tags.items() if key.startswith(STAGE)]
    order = [address.strip() for address in tags.get("made_by", "").split(",")]
    stages.sort(key=lambda one: order.index(one.address) if one.address in order else len(order))
    return Lineage(
        candidate=str(run.info.run_name),
        run_id=str(run.info.run_id),
        parent_run_id=tags.get("mlflow.parentRunId", ""),
        versions=versions,
        commit=tags.get("git.commit", "none"),
        branch=tags.get("git.branch", ""),
        dirty=tags.get("git.dirty", "unknown"),
        edits=tags.get("git.edits", ""),
        experiment=tags.get("dvc.experiment", ""),
        dataset=tags.get("dataset", ""),
        data_md5=tags.get("data.md5", ""),
        host=stages[-1].host if stages else tags.get("machine.host", "unknown"),
        user=stages[-1].user if stages else tags.get("mlflow.user", ""),
        ended=int(run.info.end_time or 0),
        params=dict(sorted(run.data.params.items())),
        stages=stages,
    )


def of_commit(revision: str, store: Store | None = None) -> list[Lineage]:
    """Models that a commit made, in whole or in part, or whose results its dvc.lock holds."""
    commit = _commit(revision)
    held = _results_of(commit)
    models = [md5 for path, md5 in held.items() if path.startswith("data/models/")]
    return _matching(
        store,
        [commit, *models],
        lambda one: (
            one.commit.startswith(commit)
            or any(stage.commit.startswith(commit) for stage in one.stages)
            or bool(one.stages and one.stages[-1].outs.items() <= held.items())
        ),
    )


def _results_of(commit: str) -> dict[str, str]:
    """md5 by path of what a commit's dvc.lock holds, whenever it was committed."""
    shown = subprocess.run(["git", "show", f"{commit}:dvc.lock"], capture_output=True, text=True)
    if shown.returncode:
        return {}
    stages = YAML(typ="safe", pure=True).load(shown.stdout).get("stages", {})
    outs = [out for stage in stages.values() for out in stage.get("outs", [])]
    return {out["path"]: str(out.get("md5")) for out in outs}


def of_data(md5: str, store: Store | None = None) -> list[Lineage]:
    """Models made from data (or any other output) with this md5; its start is enough."""
    return _matching(
        store,
        [md5],
        lambda one: (
            one.data_md5.startswith(md5)
            or any(out.startswith(md5) for stage in one.stages for out in stage.outs.values())
        ),
    )


def of_stage(stage: str, store: Store | None = None) -> list[Lineage]:
    """Models that a stage made, by its address (train_linear@dismec) or the id of its run."""
    wanted = stage.replace("/", "@", 1)
    return _matching(
        store,
        [wanted],
        lambda one: any(wanted in (each.address, each.run_id) for each in one.stages),
    )


def _matching(
    store: Store | None, words: list[str], wanted: Callable[[Lineage], bool]
) -> list[Lineage]:
    """Models that one of the words leads to and that are wanted, newest first."""
    store = store or open_store(dataset_name())
    runs = candidates_found_by(store, words)
    versions = versions_by_run(store)
    read = (_read(run, versions.get(run.info.run_id, [])) for run in runs)
    return [one for one in read if wanted(one)]


def _commit(revision: str) -> str:
    """The full id of a commit; one that git does not have here may still be in the store."""
    done = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return done.stdout.strip()
    if len(revision) >= 7 and all(letter in "0123456789abcdef" for letter in revision):
        return revision
    raise ConfigError(f"git knows no revision {revision!r}; wanted a commit, branch or tag")


# --- as text -------------------------------------------------------------------------------------


def text(one: Lineage, all_params: bool = False) -> str:
    """One model for a reader, with the way back to its code."""
    rows = [
        ("model", f"{', '.join(one.versions) or 'not registered'}"),
        ("candidate", one.candidate),
        ("run", one.run_id),
        ("commit", f"{one.commit}{f' ({one.branch})' if one.branch else ''}"),
        ("tree", _tree(one)),
        ("data", f"{one.dataset} {one.data_md5}".strip()),
        ("made", f"by {one.user} on {one.host}, {_time(one.ended)}"),
    ]
    if one.experiment:
        rows.insert(5, ("experiment", f"{one.experiment} (dvc exp apply {one.experiment})"))
    lines = [f"{name:<11}{value}" for name, value in rows]
    lines.append("\nstages")
    width = max((len(stage.address) for stage in one.stages), default=0)
    for stage in one.stages:
        lines.append(
            f"  {stage.address:<{width}}  {stage.source:<8}  by {stage.user} on {stage.host}, "
            f"{_time(stage.ended)}, commit {stage.commit[:10]}"
            f"{' with edits' if stage.dirty == 'true' else ''}, run {stage.run_id}"
        )
        if stage.computed:
            lines.append(f"  {'':<{width}}  {stage.computed}")
        here = locked_outs(stage.address)
        for path, md5 in stage.outs.items():
            same = "  (as in this workspace)" if here.get(path) == md5 else ""
            lines.append(f"  {'':<{width}}  {md5}  {path}{same}")
    if all_params and one.params:
        lines += ["\nparams", *(f"  {key} = {value}" for key, value in one.params.items())]
    return "\n".join(lines)


def _tree(one: Lineage) -> str:
    if one.dirty == "true":
        where = f"lineage/uncommitted.patch of run {one.parent_run_id}"
        return f"DIRTY: {one.edits} differed from the commit; the difference is {where}"
    return "clean: the commit holds exactly this code" if one.dirty == "false" else "unknown"


def table(found: list[Lineage]) -> str:
    """Many models, one line each."""
    rows = [("candidate", "model", "commit", "tree", "data", "run")]
    for one in found:
        tree = {"true": "dirty", "false": "clean"}.get(one.dirty, "unknown")
        versions = ", ".join(one.versions) or "-"
        rows.append((one.candidate, versions, one.commit[:10], tree, one.data_md5[:10], one.run_id))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
