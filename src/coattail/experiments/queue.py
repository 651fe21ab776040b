"""Many experiments at once, each in a clone of its own, on whatever machines there are.

The code travels as a shallow git repository inside the task, the experiment comes back as a git
bundle, and the data goes through DVC's remote. So a worker needs no access to this machine, only
coattail itself and the remote.
"""

from __future__ import annotations

import io
import itertools
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from coattail.engine import open_engine
from coattail.errors import CoattailError, ConfigError
from coattail.files import atomic_file
from coattail.pipeline import outputs
from coattail.pipeline.pointing import own_standing
from coattail.tracking import journal, outbox
from coattail.tracking.publishing.gather import PUBLISHED
from coattail.tracking.record import git_tags
from coattail.tracking.store import address, dataset_name, open_store

log = logging.getLogger("coattail")

CACHE = "COATTAIL_CACHE"
"""Environment of a worker: the folder where experiments on that machine share DVC's cache."""


@dataclass(frozen=True)
class Task:
    """One experiment, with all that a worker needs to know."""

    name: str
    overrides: tuple[str, ...]  # as `dvc exp run -S` takes them
    commit: str
    repository: bytes  # tar of a shallow .git
    author: tuple[str, str]
    remote: tuple[str, str] | None  # name and address of DVC's remote; None: share ``cache``
    cache: str | None  # DVC's cache of this project, for workers on this machine
    tracking: str | None  # MLflow's address, if workers can reach it


@dataclass(frozen=True)
class Finished:
    """What a worker sends back."""

    name: str
    host: str
    seconds: float
    bundle: bytes  # the experiment's commit and ref
    undelivered: dict[str, str]  # run records that MLflow did not take
    journal: dict[str, str]  # when, where and how fast its stages ran
    shown: bool  # whether MLflow took the results


def grid(overrides: Iterable[str]) -> list[tuple[str, ...]]:
    """``["a.C=1,3", "b=x"]`` as every combination: ``(a.C=1, b=x), (a.C=3, b=x)``.

    A comma inside brackets belongs to the value.
    """
    choices = []
    for one in overrides:
        key, found, values = one.partition("=")
        if not found or not key.strip() or not values:
            raise ConfigError(f"-S {one}: wanted section.name=value, or values with commas")
        split = re.split(r",(?![^\[{(]*[\]})])", values)
        choices.append([f"{key}={value.strip()}" for value in split])
    return list(itertools.product(*choices))


def name_of(overrides: Sequence[str]) -> str:
    """A name one can read: ``train_linear.dismec.C=0.3`` is dismec-C-0.3."""
    parts = []
    for one in overrides:
        key, _, value = one.partition("=")
        parts.append("-".join([*key.split(".")[-2:], value]))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "_".join(parts)).strip("-.")[:100] or "experiment"


def run_all(
    experiments: Sequence[tuple[str, ...]], where: str, prefix: str | None = None
) -> Iterator[tuple[str, Finished | None, str]]:
    """Run experiments at ``where`` (see engine); yield name, result or None, error as they end.

    Finished experiments are in this repository: `dvc exp show` lists them.
    """
    names = [
        f"{prefix}-{number}" if prefix else name_of(one)
        for number, one in enumerate(experiments, 1)
    ]
    _check(names)
    tasks = _tasks(names, experiments, where)
    with open_engine(where) as engine:
        for outcome in engine.each(run_one, tasks):
            name = names[outcome.number]
            if outcome.value is None:
                yield name, None, str(outcome.error)
                continue
            try:
                receive(outcome.value, fetch=tasks[outcome.number].remote is not None)
            except CoattailError as error:
                yield name, None, str(error)
            else:
                yield name, outcome.value, ""


def _check(names: list[str]) -> None:
    """Refuse what would be found out only after hours of work."""
    tags = git_tags()
    if tags["git.dirty"] != "false":
        raise ConfigError(
            f"uncommitted edits: {tags.get('git.edits', 'no git here')}; experiments on other "
            "machines start from a commit, so commit first"
        )
    own = own_standing()
    if own is not None and own.stale:
        raise ConfigError(f"{own.sentence}; make repro takes it in; then commit, and start again")
    twice = {name for name in names if names.count(name) > 1}
    refs = _git(Path.cwd(), "for-each-ref", "--format=%(refname)", "refs/exps").split()
    there = {ref.rsplit("/", 1)[-1] for ref in refs} & set(names)
    if twice or there:
        raise ConfigError(
            f"there is already an experiment {', '.join(sorted(twice | there))}; give other names "
            "with --name, or remove it: dvc exp remove NAME"
        )


def _tasks(names: list[str], experiments: Sequence[tuple[str, ...]], where: str) -> list[Task]:
    root = Path.cwd()
    local = where == "here" or where.startswith("pool:")
    remote = None if local else _remote(root)
    store = address()
    if store.startswith("sqlite:"):
        open_store(dataset_name())  # makes the tables and the experiment once, before many do
    reachable = local or not store.startswith("sqlite:") or _is_here(where)
    author = (
        _git(root, "config", "user.name", fail=False) or "coattail",
        _git(root, "config", "user.email", fail=False) or "coattail@localhost",
    )
    cache = _dvc(root, "cache", "dir").strip() if local else None
    shared = (_git(root, "rev-parse", "HEAD"), _shallow(root), author)
    tracking = store if reachable else None
    if tracking is None:
        log.warning(
            "MLflow is a file on this machine, which workers elsewhere cannot reach; show an "
            "experiment with: dvc exp apply NAME && coattail experiment sync"
        )
    return [
        Task(name, overrides, *shared, remote, cache, tracking)
        for name, overrides in zip(names, experiments, strict=True)
    ]


def _is_here(where: str) -> bool:
    return re.match(r"^(tcp|tls)://(127\.0\.0\.1|localhost|\[::1\]):", where) is not None


def _remote(root: Path) -> tuple[str, str]:
    """Name and address of the default remote, a folder as its full path."""
    name = _dvc(root, "config", "core.remote")
    # Not from `dvc remote list`, which breaks long addresses over several lines.
    url = _dvc(root, "config", f"remote.{name}.url") if name else ""
    if not url:
        raise ConfigError(
            "machines of a cluster share data through a DVC remote, and there is no default one; "
            "add it: dvc remote add -d shared ADDRESS (docs/how-to/team.md)"
        )
    return name, url if "://" in url else str((root / url).resolve())


def _shallow(root: Path) -> bytes:
    """The commit checked out here as a tar of a repository without history."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        _git(
            Path(folder), "clone", "-q", "--bare", "--depth=1", "--no-tags", f"file://{root}", clone
        )
        memory = io.BytesIO()
        with tarfile.open(fileobj=memory, mode="w:gz") as archive:
            archive.add(clone, ".git")
        return memory.getvalue()


FETCH = "import sys; from dvc.repo import Repo; Repo('.').fetch(revs=sys.argv[1:], workspace=False)"
"""`dvc fetch` of one commit, which the command cannot do; `dvc exp apply` needs the files."""

DELIVER = "from coattail.tracking import delivery, store; delivery.deliver(store.open_store)"
"""`coattail experiment sync` without the results, which are not there."""


def receive(result: Finished, fetch: bool) -> None:
    """Take an experiment into this repository, and keep what MLflow missed of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "experiment.bundle"
        path.write_bytes(result.bundle)
        _git(Path.cwd(), "fetch", "-q", path, "refs/exps/*:refs/exps/*")
        commit = _git(Path.cwd(), "bundle", "list-heads", path).split()[0]
    if fetch:
        _run(Path.cwd(), [sys.executable, "-c", FETCH, commit], None, True)
    for place, texts in ((outbox.folder(), result.undelivered), (journal.folder(), result.journal)):
        for name, text in texts.items():
            with atomic_file(place / Path(name).name) as path:
                path.write_text(text)


# --- on the worker -------------------------------------------------------------------------------


def run_one(task: Task) -> Finished:
    """Run one experiment in a clone of its own; push what it made."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"coattail-{task.name}-"))
    try:
        clone = _clone(task, folder / "project")
        env = _environment(task)
        if task.remote:
            # What colleagues have not pushed is computed here, so a partial pull is no error.
            _dvc(clone, "pull", "--run-cache", "--force", env=env, fail=False)
        else:
            _dvc(clone, "checkout", "--force", env=env, fail=False)
        sets = [word for one in task.overrides for word in ("-S", one)]
        try:
            _dvc(clone, "exp", "run", "-n", task.name, *sets, env=env)
        except CoattailError:
            # Why it failed belongs in MLflow, too, and the folder goes now.
            _run(clone, [sys.executable, "-c", DELIVER], env, fail=False)
            raise
        if task.remote:
            _dvc(clone, "push", "--run-cache", env=env)
        own = clone / ".dvc" / "tmp" / "coattail"
        entries = _texts(own / "journal")
        published = entries[f"{outputs.md5(clone / PUBLISHED)}.json"]
        return Finished(
            task.name,
            socket.gethostname(),
            time.monotonic() - began,
            _bundle(clone, task),
            _texts(own / "undelivered"),
            entries,
            json.loads(published)["parent_run_id"] is not None,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _texts(folder: Path) -> dict[str, str]:
    texts = {}
    for path in folder.glob("*.json"):
        with suppress(FileNotFoundError):  # it is delivered in this moment
            texts[path.name] = path.read_text()
    return texts


def _clone(task: Task, clone: Path) -> Path:
    clone.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(task.repository)) as archive:
        archive.extractall(clone, filter="data")
    _git(clone, "config", "core.bare", "false")
    for key, value in zip(("user.name", "user.email"), task.author, strict=True):
        _git(clone, "config", key, value)
    _git(clone, "checkout", "-q", "-f", "-B", "experiments", task.commit)
    cache = task.cache or os.environ.get(CACHE) or _default_cache()
    _dvc(clone, "cache", "dir", "--local", cache)
    if task.remote:
        _dvc(clone, "remote", "add", "--local", "-f", "-d", *task.remote)
    return clone


def _default_cache() -> str:
    return str(Path(tempfile.gettempdir()) / f"coattail-cache-{os.getuid()}")


def _environment(task: Task) -> dict[str, str]:
    """The worker's own environment (credentials are there), without what names another project."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("DVC_")}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}"
    env["DVC_NO_ANALYTICS"] = "true"
    if task.tracking:
        env["MLFLOW_TRACKING_URI"] = task.tracking
    return env


def _bundle(clone: Path, task: Task) -> bytes:
    refs = _git(clone, "for-each-ref", "--format=%(refname)", "refs/exps").split()
    own = [ref for ref in refs if ref.endswith(f"/{task.name}")]
    if not own:
        raise CoattailError(f"experiment {task.name} changed nothing, so DVC kept no result of it")
    path = clone / ".dvc" / "tmp" / "experiment.bundle"
    _git(clone, "bundle", "create", "-q", path, own[0], f"^{task.commit}")
    return path.read_bytes()


def _git(folder: Path, *words: object, fail: bool = True) -> str:
    return _run(folder, ["git", *map(str, words)], None, fail)


def _dvc(folder: Path, *words: str, env: dict[str, str] | None = None, fail: bool = True) -> str:
    return _run(folder, [sys.executable, "-m", "dvc", *words], env, fail)


def _run(folder: Path, words: list[str], env: dict[str, str] | None, fail: bool) -> str:
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode and fail:
        told = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        shown = " ".join(words[1:] if words[0] == "git" else words[2:])
        raise CoattailError(f"{shown} failed on {socket.gethostname()}:\n" + "\n".join(told[-15:]))
    return done.stdout.strip()
