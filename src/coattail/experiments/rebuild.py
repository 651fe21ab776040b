"""`coattail model lineage MODEL --checkout FOLDER`: the project that made a model, run again.

Commit, uncommitted changes, params; then `dvc repro` brings what a cache or a remote has and
computes the rest. Whether the bytes are those of then is said stage by stage.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coattail.config import read_yaml
from coattail.errors import ConfigError, DataError, TrackingError
from coattail.experiments.lineage import Lineage, Stage
from coattail.pipeline.stage_result import flatten
from coattail.tracking.origin import PATCH, computed, locked_outs
from coattail.tracking.record import environment_tags
from coattail.tracking.store import UNTRACKED, Store

REF = "refs/coattail/checkout"
RAN = re.compile(r"^Running stage '(?P<address>[^']+)'", re.MULTILINE)


@dataclass(frozen=True)
class Rebuilt:
    """One stage, then and now."""

    stage: Stage
    how: str  # computed or restored
    here: dict[str, str]  # md5 by path
    processor: str  # of this machine

    @property
    def equal(self) -> bool:
        return self.here == self.stage.outs

    def lines(self, width: int) -> list[str]:
        """For a reader; bytes that differ are listed."""
        verdict = "equal    " if self.equal else "DIFFERENT"
        made = f"{self.how} here" if self.how == "computed" else "restored"
        found = [f"  {self.stage.address:<{width}}  {verdict}  {made}"]
        if self.stage.computed != self.processor:
            found.append(f"  {'':<{width}}  then on {self.stage.computed or 'unknown'}")
        for path in () if self.equal else sorted({*self.here, *self.stage.outs}):
            then, now = (md5.get(path, "nothing") for md5 in (self.stage.outs, self.here))
            found += [f"  {'':<{width}}  {path}: then {then}, now {now}"] if then != now else []
        return found


def checkout(one: Lineage, folder: Path, store: Store) -> list[str]:
    """Make ``folder`` the project that made a model; return what a reader should know of it."""
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is not empty; name a folder that does not exist")
    if _git("rev-parse", "--verify", "--quiet", f"{one.commit}^{{commit}}", fail=False) == "":
        raise ConfigError(
            f"git has no commit {one.commit} here, from which {one.candidate} was made; get it: "
            "git fetch --all, or ask who made it to push"
        )
    patch = _patch(one, store)
    _git("update-ref", REF, one.commit)
    try:
        _git("clone", "-q", ".", str(folder))
        _git("fetch", "-q", "origin", REF, cwd=folder)
    finally:
        _git("update-ref", "-d", REF)
    _git("checkout", "-q", "--detach", one.commit, cwd=folder)
    origin = _git("remote", "get-url", "origin", fail=False)
    _git("remote", "set-url", "origin", origin or str(Path.cwd()), cwd=folder)
    told = [f"{folder}: {one.candidate} as it was at {one.commit[:10]}"]
    if patch is not None:
        _git("apply", "--binary", "--whitespace=nowarn", str(patch), cwd=folder)
        patch.unlink()
        told.append(f"applied what differed from the commit: {one.edits}")
    elif one.dirty == "unknown":
        told.append("nobody noted whether the tree differed from the commit")
    _share_cache(folder)
    return told + _environment(one, store) + _params(one, folder, store)


def _patch(one: Lineage, store: Store) -> Path | None:
    """The uncommitted changes as a file, if there were some."""
    if one.dirty != "true":
        return None
    folder = tempfile.mkdtemp(prefix="coattail-patch-")
    try:
        return Path(store.client.download_artifacts(one.parent_run_id, PATCH, folder))
    except Exception as error:
        raise TrackingError(
            f"{one.candidate} was made from a tree with edits ({one.edits}), and their difference "
            f"is not in run {one.parent_run_id}: it cannot be rebuilt exactly"
        ) from error


def _share_cache(folder: Path) -> None:
    """What this project's cache has, nobody need fetch or compute."""
    cache = _dvc("cache", "dir", cwd=Path.cwd())
    _dvc("cache", "dir", "--local", str(Path(cache).resolve()), cwd=folder)


def _environment(one: Lineage, store: Store) -> list[str]:
    """Libraries that are not those of then."""
    then = store.client.get_run(one.parent_run_id).data.tags
    now = environment_tags()
    changed = [
        f"{key.removeprefix('version.')} {then[key]} then, {now.get(key, 'none')} now"
        for key in sorted(then)
        if key.startswith("version.") and key != "version.coattail" and then[key] != now.get(key)
    ]
    if not changed:
        return ["the environment is that of then"]
    remedy = "make setup in the folder installs the libraries of then"
    return [f"the environment differs: {'; '.join(changed)} ({remedy})"]


def _params(one: Lineage, folder: Path, store: Store) -> list[str]:
    """Params that the run noted and the folder has otherwise; none, if all is well."""
    then = store.client.get_run(one.parent_run_id).data.params
    content = {k: v for k, v in read_yaml(folder / "params.yaml").items() if k not in UNTRACKED}
    now = {key: str(value)[:6000] for key, value in flatten(content)}
    other = sorted(k for k in then if then[k] != now.get(k))
    listed = ", ".join(f"{k} {then[k]} then, {now.get(k, 'none')} now" for k in other[:5])
    return [f"params differ: {listed}"] if other else []


def rebuild(one: Lineage, folder: Path, retrain: bool = False) -> list[Rebuilt]:
    """Bring or compute every stage of a model in ``folder`` and compare with what it was."""
    folder = folder.resolve()
    words = ["repro", one.stages[-1].address]
    if retrain:  # nothing that anybody has computed before
        _dvc("cache", "dir", "--local", ".dvc/cache", cwd=folder)
        words.insert(1, "--no-run-cache")
    elif _dvc("config", "core.remote", cwd=folder, fail=False):
        _dvc("fetch", "--run-cache", one.stages[-1].address, cwd=folder, fail=False)
        words.insert(1, "--pull")
    ran = {found["address"] for found in RAN.finditer(_follow(words, folder))}
    processor = computed(environment_tags())
    return [
        Rebuilt(
            stage,
            "computed" if stage.address in ran else "restored",
            locked_outs(stage.address, folder / "dvc.lock"),
            processor,
        )
        for stage in one.stages
    ]


def text(outcomes: list[Rebuilt]) -> str:
    """What came out, for a reader."""
    width = max(len(each.stage.address) for each in outcomes)
    lines = [f"this machine: {outcomes[0].processor}"]
    lines += [line for each in outcomes for line in each.lines(width)]
    different = [each.stage.address for each in outcomes if not each.equal]
    end = "every stage has the bytes of then"
    if different:
        end = f"other bytes than then: {', '.join(different)}"
    return "\n".join([*lines, end])


# --- small things --------------------------------------------------------------------------------


def _follow(words: list[str], folder: Path) -> str:
    """Run DVC in the folder; show its lines as they come, and return them."""
    said = []
    with subprocess.Popen(
        [sys.executable, "-m", "dvc", *words],
        cwd=folder,
        env=_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout or ():
            said.append(line)
            sys.stderr.write(line)
            sys.stderr.flush()
    if process.returncode:
        told = "".join(said).strip().split("\n")[-1]
        raise DataError(f"dvc {' '.join(words)} in {folder}: {told}")
    return "".join(said)


def _environ() -> Mapping[str, str]:
    """Ours without what names this project or its store: the folder has its own."""
    foreign = ("DVC_ROOT", "DVC_EXP", "GIT_DIR", "MLFLOW_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return kept | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]])}


def _git(*words: str, cwd: Path | None = None, fail: bool = True) -> str:
    return _run(["git", *words], cwd, fail)


def _dvc(*words: str, cwd: Path, fail: bool = True) -> str:
    return _run([sys.executable, "-m", "dvc", *words], cwd, fail)


def _run(words: list[str], cwd: Path | None, fail: bool) -> str:
    options: dict[str, Any] = {"capture_output": True, "text": True, "env": _environ()}
    done = subprocess.run(words, cwd=cwd, **options)
    if done.returncode and fail:
        told = (done.stderr or done.stdout).strip().split("\n")[-1]
        raise DataError(f"{' '.join(words[-4:])}: {told}")
    return str(done.stdout).strip() if done.returncode == 0 else ""
