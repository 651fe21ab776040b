"""The MLflow store: where it is, how runs are found, made and filled.

DVC is the truth and MLflow the window, so nothing here may stop a stage: a store that cannot be
reached is reported once, and what it should have shown stays in the run record.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from coattail.config import PARAMS, parse_yaml, read_yaml
from coattail.errors import TrackingError
from coattail.pipeline.stage_result import flatten
from coattail.tracking import trouble
from coattail.tracking.record import Point, git, now

log = logging.getLogger("coattail")

UNTRACKED = ("device", "threads")
"""Top-level settings of params.yaml that change how a stage runs, not what it computes."""

KIND = "coattail.kind"  # parent, stage or candidate
KEY = "coattail.key"  # which pipeline execution a parent stands for
UID = "coattail.uid"  # which run record a run shows
RESULT = "coattail.result"  # md5 of what it computed or published, as dvc.lock has it
LINK = "candidate."
"""Beginning of a parent's tags that name the runs of its candidates, own and others'."""
QUICK = {"TIMEOUT": "10", "MAX_RETRIES": "0"}
"""While a stage computes, a server that is away may cost seconds; the stage tries again later."""
PATIENT = {"TIMEOUT": "120", "MAX_RETRIES": "3"}
"""When showing results is the work itself, as in publish and sync."""
T = TypeVar("T")


def root() -> Path:
    """The project's folder; DVC names the real one even inside a queued experiment's copy."""
    return Path(os.environ.get("DVC_ROOT") or ".").resolve()


def address() -> str:
    """Where the store is: MLFLOW_TRACKING_URI, else a SQLite file in the project."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root() / 'mlflow.db'}"


def unused() -> bool:
    """Whether the store is a file that nothing has made yet; a mere look should not make it."""
    place = address()
    return place.startswith("sqlite:///") and not Path(place.removeprefix("sqlite:///")).exists()


def mark() -> str:
    """A short name of the store and of who writes to it, for names of files."""
    who = os.environ.get("MLFLOW_TRACKING_USERNAME", "")
    return hashlib.sha256(f"{without_password(address())} {who}".encode()).hexdigest()[:8]


def without_password(uri: str) -> str:
    """An address as it may be shown: ``http://ann@host`` for ``http://ann:secret@host``."""
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1@", uri)


def pipeline_key() -> str:
    """One value per pipeline execution: the experiment's name, else the state it started from.

    The place is part of it: on a team's server two people may run the same commit at once, and
    neither may go on with the other's unfinished run.
    """
    name = os.environ.get("DVC_EXP_NAME")
    if name:
        return experiment_key(name, os.environ.get("DVC_EXP_BASELINE_REV", ""))
    dvc = Path("dvc.yaml")
    state = [
        json.dumps(tracked_params(), sort_keys=True, default=str),
        dvc.read_text(encoding="utf-8") if dvc.exists() else "",
        git("rev-parse", "HEAD") or "none",
    ]
    return f"repro:{hashlib.sha256(chr(0).join(state).encode()).hexdigest()[:16]}:{_place()}"


def experiment_key(name: str, baseline: str) -> str:
    """Of an experiment by its name and the commit it started from."""
    return f"exp:{baseline[:12]}:{name}:{_place()}"


def _place() -> str:
    return hashlib.sha256(f"{socket.gethostname()}:{root()}".encode()).hexdigest()[:8]


def tracked_params() -> dict[str, Any]:
    """params.yaml without the settings that do not change results."""
    return {key: value for key, value in read_yaml(PARAMS).items() if key not in UNTRACKED}


class Store:
    """Thin layer over MlflowClient; opened under a lock, since the first use creates the tables."""

    def __init__(self, experiment: str, patience: dict[str, str] = PATIENT) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        _be_patient(patience)
        for noisy in ("mlflow", "alembic", "mlflow.store.db.utils"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        from mlflow import MlflowClient

        self.uri = address()
        with self.lock():
            self.client: Any = MlflowClient(self.uri)
            self.experiment_id = self._experiment(experiment)

    @property
    def shown_uri(self) -> str:
        return without_password(self.uri)

    @staticmethod
    def lock() -> FileLock:
        folder = root() / ".dvc" / "tmp"
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / "coattail-tracking.lock", timeout=120)

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self.client.get_experiment_by_name(name)
        if found is None:
            # Only the embedded store needs a place of its own; a server decides for itself.
            local = self.uri.startswith("sqlite:")
            place = (root() / "mlartifacts").as_uri() if local else None
            # The tag makes the UI open in its view for trained models rather than for prompts.
            tags = {"mlflow.experimentKind": "custom_model_development"}
            try:
                return str(self.client.create_experiment(name, artifact_location=place, tags=tags))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                found = self.client.get_experiment_by_name(name)  # somebody else was quicker
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    # --- runs ------------------------------------------------------------------------------------

    def knows(self, run_id: str | None) -> bool:
        return self.run(run_id) is not None

    def run(self, run_id: str | None) -> Any | None:
        """A run that is there and not deleted."""
        from mlflow.exceptions import MlflowException

        if not run_id:
            return None
        try:
            run = self.client.get_run(run_id)
        except MlflowException as error:
            # A team's server forbids a run that is not there, so that nobody can guess ids.
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED"):
                return None
            raise
        return run if run.info.lifecycle_stage == "active" else None

    def runs(self, run_ids: Iterable[str | None]) -> dict[str, Any]:
        """Those of some runs that are there, by id, with one question for many."""
        found: dict[str, Any] = {}
        for chunk in _chunks(sorted({one for one in run_ids if one}), 100):
            listed = ", ".join(f"'{one}'" for one in chunk)
            found |= {
                run.info.run_id: run for run in self.search(f"attributes.run_id IN ({listed})")
            }
        return found

    def search(self, *conditions: str, most: int = 1000) -> list[Any]:
        """Runs of this experiment that meet all the conditions, newest first."""
        found: list[Any] = []
        token = None
        while len(found) < most:
            page = self.client.search_runs(
                [self.experiment_id],
                " and ".join(conditions),
                order_by=["attributes.start_time DESC"],
                max_results=min(most - len(found), 1000),
                page_token=token,
            )
            found += page
            token = page.token
            if not token:
                break
        return found

    def find_parent(self, key: str, finished: bool | None) -> Any | None:
        """The newest parent with this key that has (or has not) finished; None: either."""
        conditions = [f"tags.`{KEY}` = '{key}'", f"tags.`{KIND}` = 'parent'"]
        if finished is not None:
            conditions.append(f"attributes.status {'=' if finished else '!='} 'FINISHED'")
        return next(iter(self.search(*conditions, most=1)), None)

    def parent(
        self,
        tags: dict[str, str],
        params: dict[str, Any],
        key: str | None = None,
        started: int | None = None,
    ) -> str:
        """The unfinished parent of this pipeline execution, made if there is none."""
        key = key or pipeline_key()
        with self.lock():
            run = self.find_parent(key, finished=False)
            if run is not None:
                run_id = str(run.info.run_id)
                if run.info.status != "RUNNING":
                    self.client.update_run(run_id, status="RUNNING")
                return run_id
            run_id = self.create(parent_name(tags), "parent", None, tags | {KEY: key}, started)
        self.params(run_id, params)
        return run_id

    def create(
        self,
        name: str,
        kind: str,
        parent: str | None,
        tags: dict[str, str],
        started: int | None = None,
    ) -> str:
        """A new run; ``kind`` says what a person is looking at."""
        everything = tags | {KIND: kind}
        if parent:
            everything["mlflow.parentRunId"] = parent
        if "git.commit" in tags:
            everything["mlflow.source.git.commit"] = tags["git.commit"]
        everything["mlflow.user"] = tags.get("user") or user_name()  # who made it, not who shows it
        everything["mlflow.source.name"] = tags.get("dvc.stage", "dvc repro")
        everything["mlflow.source.type"] = "LOCAL"
        run = self.client.create_run(
            self.experiment_id, start_time=started or now(), tags=everything, run_name=name
        )
        return str(run.info.run_id)

    def params(self, run_id: str, values: dict[str, Any]) -> None:
        from mlflow.entities import Param

        def write() -> None:
            # MLflow refuses a second, different value of a param, also on a resumed parent.
            there = self.client.get_run(run_id).data.params
            new = [Param(k, str(v)[:6000]) for k, v in flatten(values) if k not in there]
            for chunk in _chunks(new, 100):
                self.client.log_batch(run_id, params=chunk)

        insist(write)

    def metrics(self, run_id: str, points: Iterable[Point]) -> None:
        from mlflow.entities import Metric

        finite = [p for p in points if p.value == p.value and abs(p.value) != float("inf")]
        for chunk in _chunks([Metric(p.key, p.value, p.time, p.step) for p in finite], 1000):
            insist(partial(self.client.log_batch, run_id, metrics=chunk))

    def tags(self, run_id: str, values: dict[str, str]) -> None:
        from mlflow.entities import RunTag

        for chunk in _chunks([RunTag(k, str(v)[:5000]) for k, v in values.items()], 100):
            insist(partial(self.client.log_batch, run_id, tags=chunk))

    def dataset(self, run_id: str, name: str, digest: str) -> None:
        """Show which data a run read: its name and DVC's hash."""
        from mlflow.entities import Dataset, DatasetInput

        entity = Dataset(name=name, digest=digest[:36], source_type="dvc", source=f"dvc:{digest}")
        insist(partial(self.client.log_inputs, run_id, [DatasetInput(entity, [])]))

    def finish(self, run_id: str, status: str, ended: int | None = None) -> None:
        self.client.set_terminated(run_id, status, ended or now())


_ours: dict[str, str] = {}


def _be_patient(patience: dict[str, str]) -> None:
    """Set how long the client waits for a server, unless the user has said so."""
    for key, value in patience.items():
        name = f"MLFLOW_HTTP_REQUEST_{key}"
        if os.environ.get(name, "") in ("", _ours.get(name)):
            os.environ[name] = _ours[name] = value


def parent_name(tags: Mapping[str, str]) -> str:
    """`repro-968c875* ada`: commit, a star for an edited tree, and who; or the experiment."""
    star = "*" if tags.get("git.dirty") == "true" else ""
    usual = f"repro-{tags.get('git.commit', '')[:7]}{star} {tags.get('user', '')}".rstrip()
    return tags.get("dvc.experiment") or usual


def user_name() -> str:
    """Who works here: the account on the team's server, else the one on this machine."""
    if os.environ.get("MLFLOW_TRACKING_USERNAME"):
        return os.environ["MLFLOW_TRACKING_USERNAME"]
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an id without a name, as in some containers
        return str(os.getuid())


def dataset_name() -> str:
    section = read_yaml("params.yaml").get("dataset") or {}
    return str(section.get("name", "unnamed"))


def data_hash() -> str | None:
    """DVC's hash of data/features (else data/raw) as dvc.lock has it now."""
    for stage, path in (("preprocess", "data/features"), ("download", "data/raw")):
        for out in locked(stage).get("outs", []):
            if out.get("path") == path:
                return str(out.get("md5"))
    return None


def locked(stage: str, lock: Path = Path("dvc.lock")) -> dict[str, Any]:
    """What dvc.lock has of a stage. Only its lines are parsed: all of them take 60 ms."""
    if not lock.exists():
        return {}
    text = lock.read_text(encoding="utf-8")
    block = re.search(rf"^  {re.escape(stage)}:\n(?:    .*\n|\n)+", text, re.MULTILINE)
    stages = parse_yaml(block[0], lock) if block else parse_yaml(text, lock).get("stages", {})
    found: dict[str, Any] = stages.get(stage) or {}
    return found


def outages() -> tuple[type[Exception], ...]:
    """What calls of a store raise when it, its database or the network fails."""
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    lines = (RequestException, ConnectionError, TimeoutError)
    return (TrackingError, MlflowException, SQLAlchemyError, *lines)


def insist(write: Callable[[], T], tries: int = 4) -> T:
    """The result of a write, repeated where another client has inserted the same row meanwhile.

    MLflow looks for a row and then inserts it, so of two clients that write the same param, tag or
    alias for the first time one gets the database's complaint. Its second try finds the row.
    """
    for number in range(1, tries):
        try:
            return write()
        except outages() as error:
            if not re.search("IntegrityError|UniqueViolation", str(error)):
                raise
            time.sleep(0.1 * number)
    return write()


def open_store(experiment: str, patience: dict[str, str] = PATIENT) -> Store:
    """A Store, or TrackingError naming the address and the remedy, within seconds."""
    trouble.check_server(address(), without_password(address()))
    try:
        return Store(experiment, patience)
    except Exception as error:
        raise TrackingError(
            f"the MLflow store {without_password(address())} cannot be used: "
            f"{told(error) or error}; check MLFLOW_TRACKING_URI or run: coattail doctor"
        ) from error


def told(error: BaseException) -> str:
    """What a failure of the store means, in one sentence; empty if it is not the store's."""
    if not isinstance(error, outages()):
        return ""
    return trouble.sentence(error, without_password(address()), user_name())


def _chunks(items: list[T], size: int) -> Iterable[list[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
