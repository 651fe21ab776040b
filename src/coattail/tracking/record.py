"""One execution of a stage: what it computed, and when, where, by whom and how fast."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import tempfile
import time
import uuid
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from coattail import cores, processor
from coattail.errors import DataError
from coattail.files import atomic_file
from coattail.pipeline.stage_result import Logged, StageResult

LIBRARIES = ("coattail", "dvc", "mlflow", "numba", "numpy", "scipy", "torch")


@dataclass
class Point:
    """One value of a metric as it was logged."""

    key: str
    value: float
    step: int
    time: int  # milliseconds since the epoch


@dataclass
class RunRecord:
    """A stage's run: enough to show it again in a store that has never seen it.

    DVC keeps the part of it that another run would repeat (``result``); the journal keeps all.
    """

    stage: str
    variant: str | None
    params: dict[str, Any]
    started: int
    ended: int = 0
    status: str = "RUNNING"
    run_id: str | None = None
    parent_run_id: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    history: list[Point] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)  # finds the run in any store
    key: str = ""  # the pipeline execution it belongs to (store.pipeline_key)
    facts: dict[str, str] = field(default_factory=dict)  # what the stage found, as tags
    outs: dict[str, str] = field(default_factory=dict)  # DVC's md5 by path

    @property
    def address(self) -> str:
        return f"{self.stage}@{self.variant}" if self.variant else self.stage

    @property
    def name(self) -> str:
        """The address as MLflow takes it: names there cannot hold ``@``."""
        return self.address.replace("@", "/")

    @property
    def seconds(self) -> float:
        return (self.ended - self.started) / 1000

    @property
    def known(self) -> bool:
        """Whether anybody can tell when and where this was computed."""
        return bool(self.ended)

    def result(self) -> StageResult:
        """What was computed, without times, machines and ids."""
        history = [Logged(point.key, point.value, point.step) for point in self.history]
        return StageResult(
            self.stage, self.variant, self.params, self.metrics, history, self.facts, self.outs
        ).repeatable()

    @staticmethod
    def of_result(result: StageResult) -> RunRecord:
        """All that is left of a run whose circumstances nobody knows."""
        return RunRecord(
            result.stage,
            result.variant,
            result.params,
            started=0,
            status="FINISHED",
            metrics=dict(result.metrics),
            history=[Point(one.key, one.value, one.step, 0) for one in result.history],
            tags={"stage": result.stage, "dvc.stage": result.address, **result.facts},
            uid=result.md5,
            facts=result.facts,
            outs=result.outs,
        )

    def save(self, path: Path) -> None:
        with atomic_file(path) as temporary:
            temporary.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")

    @staticmethod
    def load(path: Path) -> RunRecord:
        try:
            return RunRecord.of(json.loads(path.read_text()), path)
        except FileNotFoundError:
            raise DataError(f"{path} is missing") from None
        except ValueError as error:
            raise DataError(f"{path} is not a run record ({error})") from None

    @staticmethod
    def of(content: dict[str, Any], path: Path) -> RunRecord:
        """A record as it was read from ``path``."""
        try:
            content = content | {"history": [Point(**point) for point in content["history"]]}
            content.setdefault("uid", content.get("run_id") or path.name)  # records of old
            return RunRecord(**content)
        except (TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{path} is not a run record ({error})") from None


def now() -> int:
    """Milliseconds since the epoch, as MLflow counts."""
    return int(time.time() * 1000)


def cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended.

    Unlike the time on the wall it does not grow when other work shares the machine.
    """
    spent = os.times()
    own = spent.user + spent.system + spent.children_user + spent.children_system
    return round(own, 2)


def environment_tags() -> dict[str, str]:
    """Machine, libraries and git state of this process, as tags."""
    memory = psutil.virtual_memory().total / 2**30
    tags = {
        "machine.host": socket.gethostname(),
        "machine.platform": platform.platform(),
        "machine.cores": str(cores.available()),
        "machine.memory_gib": f"{memory:.0f}",
        "machine.processor": processor.name(),
        "machine.capability": processor.capability(),
        "version.python": platform.python_version(),
    } | run_settings()
    for library in LIBRARIES:
        try:
            tags[f"version.{library}"] = version(library)
        except PackageNotFoundError:
            continue
    experiment = {
        "dvc.experiment": os.environ.get("DVC_EXP_NAME", ""),
        "dvc.baseline": os.environ.get("DVC_EXP_BASELINE_REV", ""),
    }
    return tags | {key: value for key, value in experiment.items() if value} | git_tags()


def run_settings() -> dict[str, str]:
    """What this process computes with, as far as it can show in the last digits of a result."""
    tags = {
        "run.processor": "any" if processor.held() else "native",
        "run.threads": os.environ.get("NUMBA_NUM_THREADS", ""),
        "run.settings": " ".join(f"{name}={value}" for name, value in processor.settings().items()),
    }
    return {name: value for name, value in tags.items() if value}


CODE = ("src", "stages", "conf", "params.yaml", "dvc.yaml", "requirements.lock")
"""What a result depends on; a new file here counts as an edit even before `git add`."""


def git_tags() -> dict[str, str]:
    """Commit, branch and whether the tree differed from the commit."""
    commit = git("rev-parse", "HEAD")
    if not commit:
        return {"git.commit": "none", "git.dirty": "unknown"}
    changed = git("status", "--porcelain", "--untracked-files=no").splitlines()
    changed += [
        f"?? {path}" for path in git("ls-files", "-o", "--exclude-standard", *CODE).split("\n")
    ]
    # DVC itself rewrites these while a pipeline runs; they are outputs, not edits.
    edits = [
        line
        for line in changed
        if line[3:] not in ("", "dvc.lock") and not line[3:].startswith("metrics/")
    ]
    tags = {
        "git.commit": commit,
        "git.branch": git("rev-parse", "--abbrev-ref", "HEAD"),
        "git.dirty": str(bool(edits)).lower(),
    }
    if edits:
        tags["git.edits"] = ", ".join(line[3:] for line in edits)[:500]
    return tags


def git_patch() -> bytes:
    """The uncommitted changes of what a result depends on, for `git apply`.

    New files and binary changes are in it. It is bytes, since files may be of any encoding.
    """
    there = [path for path in CODE if Path(path).exists() or git("ls-files", "--", path)]
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}  # git add, and nobody sees it
        _git_bytes("read-tree", "HEAD", **index)
        _git_bytes("add", "-A", "--", *there, **index)
        words = ("diff", "--cached", "--binary", "--full-index", "--no-ext-diff", "--no-color")
        return _git_bytes(*words, "HEAD", "--", *there, **index)


def git(*words: str) -> str:
    """What git prints; nothing where there is no repository."""
    return _git_bytes(*words).decode("utf-8", "replace").rstrip("\n")


def _git_bytes(*words: str, **env: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, timeout=30, env=os.environ | env
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""
