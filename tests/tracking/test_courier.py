"""The courier carries runs to MLflow while stages go on; whatever kills whom, nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from coattail import tracking
from coattail.tracking import courier, journal, outbox
from coattail.tracking.courier import Courier
from coattail.tracking.record import RunRecord
from coattail.tracking.store import KIND, Store
from tests.tracking.fragile import Fragile
from tests.tracking.test_stage_runs import (
    Toy,
    deliver,
    everything,
    kinds,
    left_by,
    project,  # noqa: F401
    run_stage,
    wait_for,
)

STAGE = """
import sys, time
from pathlib import Path
from coattail import tracking
tracking.FLUSH_SECONDS = 0.0
with tracking.stage("train_deep", "x", None) as run:
    for step in range(20):
        run.log({"loss": float(step)}, step)
        while step == 10 and not Path("go").exists():
            time.sleep(0.02)
"""


def start(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ))


def stage_run(status: str) -> list:
    return [
        run
        for run in everything(Store("toy"))
        if run.data.tags[KIND] == "stage" and run.info.status == status
    ]


def losses(run) -> list[float]:
    history = Store("toy").client.get_metric_history(run.info.run_id, "loss")
    return [point.value for point in history]


def test_a_stage_at_work_is_seen_with_its_points_and_later_as_finished(project):  # noqa: F811
    stage = start(STAGE)
    wait_for(lambda: [losses(run) for run in stage_run("RUNNING")] == [list(range(11))])
    Path("go").touch()
    assert stage.wait(60) == 0
    wait_for(lambda: not outbox.waiting())
    (run,) = stage_run("FINISHED")
    assert losses(run) == list(range(20))
    assert left_by("train_deep@x").run_id == run.info.run_id


def test_a_courier_that_is_killed_leaves_everything_for_the_next(project):  # noqa: F811
    stage = start(STAGE)
    wait_for(lambda: bool(stage_run("RUNNING")))
    (pid,) = pids_of_couriers(project)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not courier.at_work())
    Path("go").touch()
    assert stage.wait(60) == 0
    assert len(outbox.waiting()) == 1, "it stays until somebody carries it"
    assert deliver() == 1
    (run,) = stage_run("FINISHED")
    assert losses(run) == list(range(20))
    assert kinds(Store("toy")) == ["parent", "stage"]


def pids_of_couriers(folder: Path) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "cwd"])
        if process.info["cwd"] == str(folder)
        and any("coattail.tracking.courier" in word for word in process.info["cmdline"] or [])
    ]


def test_a_stage_that_is_killed_without_a_word_ends_as_killed(project):  # noqa: F811
    stage = start(STAGE)
    wait_for(lambda: bool(outbox.running()) and bool(pids_of_couriers(project)))
    assert not outbox.waiting(), "it is at work"
    stage.kill()
    stage.wait()
    wait_for(lambda: bool(stage_run("KILLED")))
    (run,) = stage_run("KILLED")
    assert "without a word" in run.data.tags["failure"]
    wait_for(lambda: not outbox.waiting())
    assert {one.info.status for one in everything(Store("toy"))} == {"KILLED"}
    again = run_stage("train_deep@x")
    assert again.parent_run_id == run.data.tags["mlflow.parentRunId"]


def carried_by_a_process_that_dies(at: int, after: bool) -> bool:
    """Whether it lived to the end, because there was no such call any more."""
    pid = os.fork()
    if pid == 0:
        carrier = Courier()
        store = Store("toy")
        store.client = Fragile(
            store.client, at, after, lambda: os.kill(os.getpid(), signal.SIGKILL)
        )
        carrier._stores["toy"] = store
        carrier.look()
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("after", [False, True])
def test_a_courier_killed_at_any_call_loses_and_doubles_nothing(project, after):  # noqa: F811
    at, survived = 1, False
    while not survived:
        with tracking.stage("train_linear", f"v{at}", Toy()) as run:
            run.log({"loss": 0.5}, step=1)
            run.metrics({"weights": at})
        survived = carried_by_a_process_that_dies(at, after)
        assert deliver() == (0 if survived else 1), at
        at += 1
    assert at > 8
    runs = stage_run("FINISHED")
    assert kinds(Store("toy")) == ["parent"] + ["stage"] * (at - 1)
    assert {run.info.run_name: run.data.metrics["weights"] for run in runs} == {
        f"train_linear/v{n}": n for n in range(1, at)
    }
    assert all(losses(run) == [0.5] for run in runs)
    known = [journal.RunRecord.load(path).run_id for path in journal.folder().glob("*.json")]
    assert sorted(known) == sorted(run.info.run_id for run in runs)


def test_a_record_that_the_store_refuses_does_not_hold_up_the_others(project, caplog):  # noqa: F811
    for variant in ("good", "bad", "better"):
        with tracking.stage("train_linear", variant, Toy()) as run:
            run.metrics({"weights" if variant != "bad" else "weights?!$": 1})
    Courier().look()
    assert {run.info.run_name for run in stage_run("FINISHED")} == {
        "train_linear/good",
        "train_linear/better",
    }
    assert "cannot be shown" in caplog.text
    assert len(outbox.waiting()) == 1


def test_each_store_has_its_own_courier(project, monkeypatch):  # noqa: F811
    with tracking.stage("download", None, Toy()):
        pass
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/other.db")
    assert not Courier().look(), "that run is for another store"
    with tracking.stage("preprocess", None, Toy()):
        pass
    Courier().look()
    assert [run.info.run_name for run in stage_run("FINISHED")] == ["preprocess"]
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    Courier().look()
    assert [run.info.run_name for run in stage_run("FINISHED")] == ["download"]


def test_a_second_courier_goes_on_with_the_run_of_the_first(project):  # noqa: F811
    with tracking.stage("train_deep", "x", Toy()) as run:
        run.log({"loss": 0.5}, step=1)
        run.flush()
        assert Courier().look()
        run.log({"loss": 0.25}, step=2)
        run.flush()
        Courier().look()
        (seen,) = stage_run("RUNNING")
        assert losses(seen) == [0.5, 0.25]
    Courier().look()
    assert [losses(one) for one in stage_run("FINISHED")] == [[0.5, 0.25]]


def test_a_record_of_an_older_coattail_is_still_delivered(project):  # noqa: F811
    bare = RunRecord("download", None, {}, 1, 2, "FINISHED", tags={"dataset": "toy"}, key="repro:1")
    bare.save(outbox.folder() / "bare.json")
    assert deliver() == 1
    assert kinds(Store("toy")) == ["parent", "stage"]


def test_a_late_record_goes_to_the_run_of_its_own_time(project):  # noqa: F811
    first = run_stage("download")
    with tracking.stage("preprocess", None, Toy()):
        pass
    store = Store("toy")
    store.finish(first.parent_run_id, "FINISHED")
    with tracking.stage("preprocess", None, Toy(C=2.0)):
        pass
    deliver()
    parents = [run.data.tags["mlflow.parentRunId"] for run in stage_run("FINISHED")]
    assert parents.count(first.parent_run_id) == 2
    assert len(set(parents)) == 2
