"""Where a result comes from, as tags that MLflow can show and search."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coattail.tracking.record import RunRecord, environment_tags, git
from coattail.tracking.store import data_hash, locked, user_name

STAGE = "lineage."
"""A candidate has one such tag per stage that made it: ``lineage.train_linear/dismec``."""

FOUND_BY = "found_by"
"""Tag of a candidate: commits, runs and md5s of all its stages, for the server to search in."""
PATCH = "lineage/uncommitted.patch"
"""Artifact of a pipeline's run: what differed from its commit, for `git apply`."""


def made_now(dataset: str) -> dict[str, str]:
    """Machine, libraries, git state and data of a result that is made here and now."""
    digest = data_hash()
    own = {"dataset": dataset, "user": user_name()}
    return environment_tags() | own | ({"data.md5": digest} if digest else {})


def made_by_commit(dataset: str) -> dict[str, str]:
    """State of git of results that came with a commit: the last one that wrote dvc.lock."""
    commit, _, author = git("log", "-1", "--format=%H %an", "--", "dvc.lock").partition(" ")
    own = {"dataset": dataset, "user": author or "unknown"}
    own |= {"git.commit": commit or "none", "git.dirty": "unknown"}
    digest = data_hash()
    return own | ({"data.md5": digest} if digest else {})


def stage_origin(record: RunRecord, source: str, run_id: str) -> str:
    """One stage of a result as JSON: which run made it, where, from which commit, which bytes.

    The facts are those of the run that computed the bytes, on whatever machine that was; they are
    unknown where neither this project's journal nor the store has that run.
    """
    tags = record.tags
    origin: dict[str, Any] = {
        "address": record.address,
        "source": source,
        "run_id": run_id,
        "user": tags.get("user", "unknown"),
        "host": tags.get("machine.host", "unknown"),
        "commit": tags.get("git.commit", "none"),
        "dirty": tags.get("git.dirty", "unknown"),
        "ended": record.ended,
        "outs": record.outs or locked_outs(record.address),
    }
    for name in ("dvc.experiment", "device"):
        if name in tags:
            origin[name.removeprefix("dvc.")] = tags[name]
    if "run.processor" in tags:
        origin["computed"] = computed(tags)
    return json.dumps(origin, sort_keys=True)


def found_by(tags: Mapping[str, str]) -> str:
    """What a candidate can be found by, out of its tags."""
    words = [tags.get("git.commit", ""), tags.get("data.md5", "")]
    for key, value in tags.items():
        if key.startswith(STAGE):
            one = json.loads(value)
            words += [one["address"], one["commit"], one["run_id"], *one["outs"].values()]
    return " ".join(dict.fromkeys(word for word in words if word))[:5000]


def computed(tags: Mapping[str, str]) -> str:
    """The processor of a run and what it was told: all that can differ in the last digits."""
    if "run.processor" not in tags:
        return "unknown"
    name = tags.get("machine.processor", "unknown")
    parts = [f"{name} ({tags.get('machine.capability', 'unknown')})"]
    parts.append(f"processor: {tags['run.processor']}")
    if "run.threads" in tags:
        parts.append(f"threads: {tags['run.threads']}")
    if tags["run.processor"] == "native" and "run.settings" in tags:
        parts.append(tags["run.settings"])
    return ", ".join(parts)


def locked_outs(address: str, lock: Path = Path("dvc.lock")) -> dict[str, str]:
    """DVC's md5 of every output of a stage; the result of the stage itself is left out."""
    return {
        one["path"]: str(one.get("md5"))
        for one in locked(address, lock).get("outs", [])
        if not one["path"].startswith("data/runs/")
    }
