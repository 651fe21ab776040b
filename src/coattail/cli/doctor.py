"""`coattail doctor`: look for what goes wrong in practice and say what to do about it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from coattail import cores, processor
from coattail.config import read_yaml
from coattail.errors import CoattailError, ConfigError
from coattail.pipeline.candidates import candidates
from coattail.pipeline.leftovers import leftovers
from coattail.team.finding import Finding

ENOUGH_GB = 5
NO_GPU = Finding("note", "no GPU in use: train_deep and transfer run on the CPU, and slower")


def examine() -> Iterator[Finding]:
    """Every check in turn; one that cannot run is itself a finding."""
    checks: list[Callable[[], Iterator[Finding]]] = [
        _conflicts,
        _params,
        _own_data,
        _git,
        _disk,
        _locks,
        _leftovers,
        _strays,
        _device,
        _processor,
        _waiting,
        _remote,
        _store,
    ]
    for check in checks:
        try:
            yield from check()
        except CoattailError as error:
            yield Finding("problem", str(error))


def examine_server(address: str) -> Iterator[Finding]:
    """Every check of a team's server, as the user that MLFLOW_TRACKING_* name."""
    from coattail.team import server_check
    from coattail.team.client import Server
    from coattail.tracking.store import dataset_name

    yield from server_check.examine(Server.of_environment(address), dataset_name())


def _conflicts() -> Iterator[Finding]:
    """A merge that git left to a person; nothing works with the marks it writes."""
    from coattail.tracking.record import git

    unmerged = {line.split("\t")[-1] for line in git("ls-files", "-u").splitlines()}
    if "params.yaml" in unmerged:
        yield Finding(
            "problem",
            "params.yaml is in conflict: two people have changed the same lines",
            "edit it: keep the lines you want, remove <<<<<<<, =======, >>>>>>>; then "
            "git add params.yaml, and coattail doctor again",
        )
    elif "dvc.lock" in unmerged:
        yield Finding(
            "problem",
            "dvc.lock is in conflict: two people have changed results",
            "git checkout --ours dvc.lock && dvc fetch --run-cache && dvc repro --pull, then "
            'git add -A && git commit: it takes what either has computed ("When two people '
            'run the same experiment" in docs/how-to/team.md)',
        )


def _remote() -> Iterator[Finding]:
    from coattail.team import remote_check

    yield from remote_check.examine()


def _params() -> Iterator[Finding]:
    from coattail.pipeline.schema import check

    content = read_yaml("params.yaml")
    check(content)
    yield Finding("ok", f"params.yaml is valid: {len(candidates(content))} candidates")


def _own_data() -> Iterator[Finding]:
    from coattail.pipeline.pointing import own_standing

    found = own_standing()
    if found is None:
        return
    if found.relation == "lost":
        yield Finding("problem", found.sentence, "dvc pull, or coattail use FORMAT --data FOLDER")
    elif found.stale:
        yield Finding("note", found.sentence, "make repro takes it in, or says how")
    else:
        yield Finding("ok", found.sentence)


def _git() -> Iterator[Finding]:
    from coattail.tracking.record import git_tags

    tags = git_tags()
    if tags["git.commit"] == "none":
        yield Finding("problem", "no git commit here", "clone with git, or git init and commit")
    elif tags["git.dirty"] == "true":
        yield Finding(
            "note",
            f"uncommitted edits: {tags.get('git.edits', '')}",
            "runs made now are flagged git.dirty; commit to make them exactly repeatable",
        )
    else:
        yield Finding("ok", f"git is clean at {tags['git.commit'][:10]}")


def _disk() -> Iterator[Finding]:
    free = shutil.disk_usage(".").free / 2**30
    if free < ENOUGH_GB:
        yield Finding("problem", f"only {free:.1f} GiB free here", "free some space: dvc gc -w")
    else:
        yield Finding("ok", f"{free:.0f} GiB free")


def _locks() -> Iterator[Finding]:
    """DVC notes who reads and writes which path; a killed process leaves its note behind."""
    path = Path(".dvc/tmp/rwlock")
    stale: set[int] = set()
    if path.exists():
        try:
            notes = json.loads(path.read_text() or "{}")
        except ValueError:
            yield Finding("problem", f"{path} is damaged", f"remove it: rm {path}")
            return
        for entry in notes.values():
            holders = [entry["write"]] if entry.get("write") else []
            holders += entry.get("read") or []
            stale |= {h["pid"] for h in holders if not psutil.pid_exists(h["pid"])}
    if stale:
        names = ", ".join(str(pid) for pid in sorted(stale))
        yield Finding("problem", f"stale lock of dead process {names} in {path}", f"rm {path}")
    else:
        yield Finding("ok", "no stale lock")


def _leftovers() -> Iterator[Finding]:
    """Temporary files and folders of writes that were killed half-way."""
    found = [p for p in Path("data").rglob(".*.*") if p.name != ".gitignore" and p.exists()]
    found = [p for p in found if not any(q.name.startswith(".") for q in p.parents if q.name)]
    if found:
        names = " ".join(f"'{p}'" for p in found[:5])
        yield Finding("note", f"{len(found)} half-written files in data/", f"rm -r {names}")


def _strays() -> Iterator[Finding]:
    """Results of candidates that params.yaml no longer has."""
    strays = leftovers(read_yaml("params.yaml"))
    if strays:
        names = ", ".join(str(path) for path in strays[:5])
        yield Finding(
            "note", f"results of variants not in params.yaml: {names}", "coattail data clean"
        )


def _device() -> Iterator[Finding]:
    from coattail.pipeline.runner import settings

    wanted = settings().device
    if wanted in ("auto", "cpu") and not _may_have_gpu():
        yield NO_GPU
        return
    try:
        from coattail.models.deep.device import resolve

        device = resolve(wanted)
    except CoattailError as error:
        yield Finding("problem", str(error), "set device: auto in params.yaml")
        return
    if device == "cpu":
        yield NO_GPU
    else:
        yield Finding("ok", f"deep stages run on {device}")


def _processor() -> Iterator[Finding]:
    """What the stages compute with here, since it can show in the last digits."""
    from coattail.pipeline.runner import settings

    wanted = settings()
    threads = wanted.threads or cores.available()
    here = f"{processor.name()}, {processor.capability()}, {threads} threads"
    if wanted.processor == "native":
        given = " ".join(f"{name}={value}" for name, value in processor.settings().items())
        told = f"environment: {given}" if given else "nothing set in the environment"
        yield Finding("note", f"processor: native ({here}; {told}): results are this machine's own")
    elif obstacle := processor.obstacle():
        yield Finding("note", f"processor: any cannot be kept here ({here}): {obstacle}")
    else:
        told = " ".join(f"{name}={value}" for name, value in processor.SETTINGS.items())
        yield Finding("ok", f"processor: any ({here}); stages set {told}")


def _may_have_gpu() -> bool:
    """Whether a driver is there: torch, which knows for sure, takes a second to load."""
    drivers = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
    return sys.platform != "linux" or any(Path(driver).exists() for driver in drivers)


def _waiting() -> Iterator[Finding]:
    """Runs that a store which was away has not got yet."""
    from coattail.tracking import courier
    from coattail.tracking.outbox import waiting

    count = len(waiting())
    if count and courier.at_work():
        yield Finding("ok", f"{count} runs are on their way to MLflow")
    elif count:
        what = f"{count} runs were made while the MLflow store was away and are kept here"
        yield Finding("note", what, "show them when it is back: coattail experiment sync")


def _store() -> Iterator[Finding]:
    from coattail.tracking.publishing.publish import open_parents
    from coattail.tracking.store import address, dataset_name, open_store

    store = open_store(dataset_name())
    yield Finding("ok", f"the MLflow store answers: {address()}")
    running = open_parents(store)
    if running and not _dvc_is_running():
        for run in running:
            yield Finding(
                "problem",
                f"pipeline run {run.info.run_name} ({run.info.run_id}) was left open",
                "dvc repro resumes it; coattail doctor --close marks it as killed",
            )


def close_open_parents() -> list[str]:
    """Mark parents that nobody works on, and their stages, as KILLED; return their names."""
    from coattail.tracking.publishing.publish import close_stages, open_parents
    from coattail.tracking.store import dataset_name, open_store

    if _dvc_is_running():
        raise ConfigError("stages are at work here now; close runs when they have ended")
    store = open_store(dataset_name())
    closed = []
    for run in open_parents(store):
        close_stages(store, run.info.run_id)
        store.finish(run.info.run_id, "KILLED")
        closed.append(str(run.info.run_name))
    return closed


def _dvc_is_running() -> bool:
    """Whether a stage of this project is at work now."""
    here = str(Path.cwd())
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        words = process.info["cmdline"] or []
        inside = (process.info["cwd"] or "").startswith(here)
        stage = any(word.startswith("stages.") for word in words)
        dvc = any(os.path.basename(word) == "dvc" for word in words[:2])
        if inside and process.pid != os.getpid() and (stage or (dvc and "repro" in words)):
            return True
    return False
