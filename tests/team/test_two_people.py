"""Two people, two clones, one server and one remote: what one has made, the other has too."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from mlflow import MlflowClient

from coattail.pipeline import outputs
from tests import services
from tests.project import Clone, stage_sources, tiny_project

pytestmark = [pytest.mark.services, pytest.mark.pipeline]


class Person:
    """Somebody with a clone of the project, an account on the server and access to the remote."""

    def __init__(self, name: str, clone: Clone, server: services.TeamServer) -> None:
        self.name, self.clone, self.server = name, clone, server
        clone.env |= server.env(name) | {"GIT_AUTHOR_NAME": name, "USER": name, "LOGNAME": name}

    def executed(self) -> set[str]:
        """Stages that ran for the newest pipeline run of this person."""
        return {n for n, s in stage_sources(self.newest_parent()).items() if s == "executed"}

    def newest_parent(self):
        mine = [run for run in self.runs("parent") if run.data.tags["mlflow.user"] == self.name]
        return max(mine, key=lambda run: run.info.start_time)

    def client(self) -> MlflowClient:
        """The server as this person sees it; MLflow takes the account from the environment."""
        os.environ.update(self.server.env(self.name))
        return MlflowClient(self.server.url)

    def runs(self, kind: str) -> list:
        experiment = self.client().get_experiment_by_name("demo")
        return self.client().search_runs(
            [experiment.experiment_id], f"tags.`coattail.kind` = '{kind}'", max_results=500
        )


class Team:
    """The server, the remote, a git repository in the middle, and who works with them."""

    def __init__(self, folder: Path, server: services.TeamServer) -> None:
        self.folder, self.server = folder, server

    def founder(self, name: str) -> Person:
        clone = tiny_project(self.folder / name)
        clone.dvc("remote", "add", "-d", "shared", str(self.folder / "remote"))
        clone.edit({"publish": {"models": "none"}})
        clone.commit("the team's remote")
        clone.run("git", "clone", "-q", "--bare", ".", str(self.folder / "origin.git"))
        clone.run("git", "remote", "add", "origin", str(self.folder / "origin.git"))
        self.server.add_user(name)
        return Person(name, clone, self.server)

    def join(self, name: str) -> Person:
        origin, home = str(self.folder / "origin.git"), self.folder / name
        self.folder.joinpath(name).mkdir()
        clone = Clone(home)
        clone.run("git", "clone", "-q", origin, ".")
        self.server.add_user(name)
        return Person(name, clone, self.server)


def push(person: Person, message: str) -> None:
    person.clone.commit(message)
    person.clone.dvc("push", "--run-cache")
    person.clone.run("git", "push", "-q", "origin", "HEAD")


def pull(person: Person) -> None:
    person.clone.run("git", "pull", "-q", "--rebase", "origin", "HEAD")
    person.clone.dvc("pull", "--run-cache")


@pytest.fixture(autouse=True)
def _own_environment():
    """What a test does to the environment ends with it."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    with services.team_server(workers=1) as server:
        yield Team(tmp_path_factory.mktemp("team"), server)


@pytest.fixture(scope="module")
def ann(team) -> Person:
    """She has run the pipeline against the server and pushed everything."""
    ann = team.founder("ann")
    ann.clone.dvc("repro")
    push(ann, "results")
    return ann


@pytest.fixture(scope="module")
def bob(team, ann) -> Person:
    """He has a fresh clone with everything pulled."""
    bob = team.join("bob")
    pull(bob)
    return bob


def test_two_people_share_runs_results_and_bytes(ann, bob):
    # Nothing is trained twice.
    assert "Running stage" not in bob.clone.dvc("repro")
    assert bob.clone.results() == ann.clone.results()
    assert "already shows" in bob.clone.run("coattail", "experiment", "sync")
    # Nor after he has tried something that he did not keep: a pull takes its results away.
    bob.clone.edit({"train_linear": {"tried": dict(bob.clone.params()["train_linear"]["dismec"])}})
    bob.clone.dvc("repro", "train_linear@tried")
    bob.clone.run("git", "checkout", "-q", ".")
    bob.clone.dvc("pull")
    assert not (bob.clone.folder / "data/models/tried").exists()
    assert "Running stage" not in bob.clone.dvc("repro")
    # He sees her runs.
    (hers,) = [run for run in bob.runs("parent") if run.data.tags["mlflow.user"] == "ann"]
    assert hers.info.status == "FINISHED"
    assert set(stage_sources(hers).values()) == {"executed"}
    assert len(bob.runs("candidate")) == 2
    # He changes one param; only what depends on it runs.
    bob.clone.edit({"train_linear.dismec": {"C": 0.25}})
    bob.clone.commit("a softer margin")
    bob.clone.dvc("repro")
    assert bob.executed() >= {"train_linear/dismec", "rerank/dismec-rerank", "evaluate"}
    assert not bob.executed() & {"download", "preprocess", "build_plt/flat"}
    push(bob, "results with C=0.25")
    # His run stands beside hers, and they compare by the same metrics and params.
    assert len(ann.runs("candidate")) == 4, "both candidates of his differ from hers"
    runs = [run for run in ann.runs("candidate") if run.info.run_name == "dismec"]
    found = {run.data.tags["mlflow.user"]: run for run in runs}
    assert {name: run.data.params["train_linear.C"] for name, run in found.items()} == {
        "ann": "1.0",
        "bob": "0.25",
    }
    metrics = [set(run.data.metrics) for run in found.values()]
    assert metrics[0] == metrics[1]
    # His result says who made which part of it.
    told = json.loads(bob.clone.run("coattail", "model", "lineage", "dismec", "--json"))
    sources = {stage["address"]: stage["source"] for stage in told["stages"]}
    people = {stage["address"]: stage["user"] for stage in told["stages"]}
    assert (people["preprocess"], people["train_linear@dismec"]) == ("ann", "bob")
    assert sources["preprocess"] == "cached"
    assert sources["train_linear@dismec"] == "executed"
    made = {stage["address"]: stage["commit"] for stage in told["stages"]}
    assert made["train_linear@dismec"] == told["commit"]
    assert made["preprocess"] == hers.data.tags["git.commit"]
    # She runs his experiment herself, without his cache, and gets his bytes.
    ann.clone.run("git", "pull", "-q", "--rebase", "origin", "HEAD")
    ann.clone.dvc("repro", "--no-run-cache", "evaluate")
    assert ann.clone.results() == bob.clone.results()


STAGE = """
import time
from pathlib import Path
from coattail import tracking

tracking.FLUSH_SECONDS = 0.0
with tracking.stage("train_deep", "long", None) as run:
    for step in range(300):
        run.log({"loss": 300.0 - step}, step)
        if step in (100, 200):
            Path(f"data/at-{step}").touch()
            while not Path(f"data/go-{step}").exists():
                time.sleep(0.05)
"""
"""A stage that stops twice, so that the server can go away and come back in the middle of it."""


def test_a_server_that_dies_in_the_middle_of_a_run_has_all_of_it_in_the_end(team, ann):
    clone = ann.clone
    data = clone.folder / "data"
    clone.edit({"train_linear.dismec": {"C": 0.75}})
    before = len(ann.runs("parent"))
    stage = services.Process(
        [services.BIN / "python", "-c", STAGE], data / "log", env=clone.env, cwd=clone.folder
    )
    stage.wait_for((data / "at-100").exists)
    team.server.kill()
    (data / "go-100").touch()
    stage.wait_for((data / "at-200").exists)
    # The pipeline goes on without it, to the end.
    assert "coattail experiment sync" in clone.dvc("repro")
    journal = clone.folder / ".dvc" / "tmp" / "coattail" / "journal"
    publication = journal / f"{outputs.md5(data / 'published.json')}.json"
    assert json.loads(publication.read_text())["parent_run_id"] is None
    assert "dismec" in clone.run("coattail", "leaderboard")
    team.server.start()
    (data / "go-200").touch()
    assert stage.process.wait(600) == 0, (data / "log").read_text()
    assert "now shows 2 candidates" in clone.run("coattail", "experiment", "sync")
    assert "already shows" in clone.run("coattail", "experiment", "sync")
    # One run of the pipeline, begun before and ended after, with every stage and point once.
    assert len(ann.runs("parent")) == before + 1
    parent = ann.newest_parent()
    assert parent.info.status == "FINISHED"
    assert {"train_linear/dismec", "rerank/dismec-rerank", "evaluate"} <= ann.executed()
    assert stage_sources(parent)["preprocess"] == "cached"
    own = parent.info.run_id
    children = [run for run in ann.runs("stage") if run.data.tags["mlflow.parentRunId"] == own]
    assert {run.info.status for run in children} == {"FINISHED"}
    names = sorted(run.info.run_name for run in children)
    assert names == sorted({*ann.executed(), "train_deep/long"})
    long = next(run for run in children if run.info.run_name == "train_deep/long")
    losses = [point.value for point in ann.client().get_metric_history(long.info.run_id, "loss")]
    assert losses == [300.0 - step for step in range(300)]
