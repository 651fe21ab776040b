"""What a result was computed from and on which processor, to tell the one from the other."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from coattail.config import yaml_value
from coattail.pipeline.stage_result import RUNS
from coattail.tracking import journal
from coattail.tracking.candidate_metrics import run_of
from coattail.tracking.origin import computed
from coattail.tracking.record import RunRecord

HOW = ("processor", "device", "threads")
"""Params about how work runs."""


@dataclass(frozen=True)
class Circumstances:
    """Equal recipes and different processors: then nothing but the processor differs."""

    recipe: str  # digest of code, data and params; empty if unknown
    computed: frozenset[str]  # processors and their settings; empty if unknown

    def beside(self, other: Circumstances) -> str:
        """How the two were computed, if that alone differs; else nothing."""
        known = self.recipe and self.recipe == other.recipe and self.computed and other.computed
        if not known or self.computed == other.computed:
            return ""
        return f"{'; '.join(sorted(self.computed))} against {'; '.join(sorted(other.computed))}"


NOTHING = Circumstances("", frozenset())


def of_lock(lock: str) -> Circumstances:
    """Of the results of a dvc.lock; processors are those that this project's journal knows."""
    stages = (yaml_value(lock, "dvc.lock") or {}).get("stages", {})
    recipe = {address: _recipe(stage) for address, stage in stages.items()}
    seen = set()
    for stage in stages.values():
        for out in stage.get("outs", []):
            if out["path"].startswith(f"{RUNS}/"):
                path = journal.entry(str(out.get("md5")))
                seen |= {computed(RunRecord.load(path).tags)} if path.exists() else set()
    return Circumstances(_digest(recipe), frozenset(seen - {"unknown"}))


def _recipe(stage: dict[str, Any]) -> list[Any]:
    """Code and params; the data of later stages differ as soon as one before computed otherwise."""
    deps = [d for d in stage.get("deps", []) if not re.match("data/(?!code/)", d["path"])]
    params = stage.get("params", {}).get("params.yaml", {})
    kept = {name: value for name, value in params.items() if name not in HOW}
    return [stage.get("cmd"), [(d["path"], d.get("md5")) for d in deps], kept]


def of_run(run_id: str) -> Circumstances:
    """Of a run in MLflow, if its commit held exactly what it ran."""
    run = run_of(run_id)
    if run is None or run.data.tags.get("git.dirty") != "false":
        return NOTHING
    tags = run.data.tags
    params = {name: v for name, v in run.data.params.items() if name.split(".")[0] not in HOW}
    recipe = [tags["git.commit"], tags.get("dvc.experiment"), tags.get("data.md5"), params]
    found = {computed(tags)}
    found |= {json.loads(v).get("computed") for k, v in tags.items() if k.startswith("lineage.")}
    return Circumstances(_digest(recipe), frozenset(found - {"unknown", None}))


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
