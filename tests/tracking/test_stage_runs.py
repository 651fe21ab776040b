"""Runs, parents and records against a real MLflow store in SQLite."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from coattail import tracking
from coattail.config import Params
from coattail.errors import TrackingError
from coattail.models.deep.training import curve
from coattail.pipeline.candidates import candidates
from coattail.pipeline.stage_result import StageResult, flatten, place
from coattail.report import terminal
from coattail.tracking import courier, delivery, executions, journal, outbox
from coattail.tracking.publishing.publish import Shown, open_parents, publish
from coattail.tracking.record import RunRecord, git_tags
from coattail.tracking.store import KIND, Store, data_hash, open_store, pipeline_key

PARAMS = {
    "dataset": {"name": "toy"},
    "build_plt": {"flat": {}},
    "train_linear": {
        "dismec": {"model": "ovr", "tree": "flat", "train": "features/tfidf/train", "C": 1.0}
    },
    "rerank": {"dismec-rerank": {"base": "dismec", "strategy": "propensity"}},
}
STAGES = ["download", "preprocess", "build_plt@flat", "train_linear@dismec", "rerank@dismec-rerank"]


class Toy(Params):
    C: float = 1.0


@pytest.fixture
def project(tmp_path, monkeypatch, empty_store):
    """A folder with git, params.yaml, an empty store of its own, and no courier but `deliver`."""
    monkeypatch.setattr(courier, "call", lambda: None)
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "DVC_EXP_NAME", "DVC_EXP_BASELINE_REV", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    Path("params.yaml").write_text(json.dumps(PARAMS))
    shutil.copy(empty_store, "mlflow.db")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "params.yaml"], ["commit", "-qm", "start"]):
        subprocess.run([*git, *words], check=True)
    return tmp_path


def run_stage(address: str, **metrics: float) -> RunRecord:
    name, _, variant = address.partition("@")
    with tracking.stage(name, variant or None, Toy()) as run:
        run.metrics(metrics)
    with suppress(TrackingError):  # the store is away in some tests
        deliver()
    return left_by(address)


def deliver() -> int:
    return delivery.deliver(open_store)


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    """The courier is a process of its own: what it does is there a little later."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


def left_by(address: str) -> RunRecord:
    """The run that left the result of a stage."""
    return journal.record_of(StageResult.load(place(address)))


def everything(store: Store) -> list:
    return store.client.search_runs([store.experiment_id])


def kinds(store: Store) -> list[str]:
    return sorted(run.data.tags[KIND] for run in everything(store))


def shown(records: dict[str, RunRecord]) -> Shown:
    return Shown(
        dataset="toy",
        params=PARAMS,
        records=records,
        candidates=candidates(PARAMS),
        metrics={"dismec": {"p_at_1": 60.0}, "dismec-rerank": {"p_at_1": 55.0}},
        best="dismec",
    )


def test_a_curve_holds_what_was_learned_and_not_how_fast(project):
    with tracking.stage("train_deep", "toy", Toy()) as run:
        for step, speed in enumerate((523.4, 611.9)):
            run.log({"loss": 0.5 / (step + 1), "texts_per_second": speed}, step)
        curve.write("curve.csv", run.computed)
    assert Path("curve.csv").read_text() == "step,loss\n0,0.5\n1,0.25\n"


def test_a_result_holds_what_another_run_repeats_and_its_journal_the_rest(project):
    path = Path("data/runs/train_deep@toy.json")
    written = []
    for speed in (523.4, 611.9):
        with tracking.stage("train_deep", "toy", Toy()) as run:
            run.log({"loss": 0.5, "texts_per_second": speed}, step=0)
            run.metrics({"weights": 3, "valid_seconds": speed})
            run.found(calibration="plain")
            run.note(device="cpu")
        written.append(path.read_bytes())
    deliver()
    assert written[0] == written[1]
    result = StageResult.load(path)
    assert result.metrics == {"weights": 3}
    assert [(one.key, one.value, one.step) for one in result.history] == [("loss", 0.5, 0)]
    assert result.facts == {"calibration": "plain"}
    assert result.md5 == hashlib.md5(written[0]).hexdigest()
    record = journal.record_of(result)
    assert {"weights", "valid_seconds", "seconds"} <= set(record.metrics)
    assert record.tags["device"] == "cpu"
    assert record.tags["machine.host"]
    run = Store("toy").client.get_run(record.run_id)
    assert run.data.tags["coattail.result"] == result.md5
    assert run.data.tags["calibration"] == "plain"


def test_a_result_without_a_journal_is_found_in_the_store_by_its_md5(project):
    records = {address: run_stage(address, size=1.0) for address in STAGES}
    shutil.rmtree(journal.folder())
    bare = {address: left_by(address) for address in STAGES}
    assert not any(record.known for record in bare.values())
    result = publish(Store("toy"), shown(bare), key="another execution")
    assert set(result["stages"].values()) == {"cached"}
    assert kinds(Store("toy")).count("stage") == len(STAGES), "none is shown twice"
    for address, record in records.items():
        assert bare[address].run_id == record.run_id
        assert bare[address].ended == record.ended
        assert left_by(address).tags["machine.host"] == record.tags["machine.host"]


def test_a_page_opened_where_the_journal_is_lost_has_times_and_machines_of_the_store(project):
    run_stage("evaluate")
    for address in STAGES:
        run_stage(address, size=1.0)
    shutil.rmtree(journal.folder())
    page = Path("data/report/report.html")
    page.parent.mkdir()
    page.write_text(executions.PLACE)
    text = terminal.filled_page().read_text()
    assert all(address in text for address in STAGES)
    assert os.uname().nodename in text
    assert left_by("download").known, "the journal has it again"


def test_a_page_opened_where_nobody_knows_the_runs_says_so_and_makes_no_store(project):
    for address in ["evaluate", *STAGES]:
        run_stage(address)
    shutil.rmtree(journal.folder())
    Path("mlflow.db").unlink()
    page = Path("data/report/report.html")
    page.parent.mkdir()
    page.write_text(executions.PLACE)
    assert terminal.filled_page().read_text() == executions.UNKNOWN
    assert not Path("mlflow.db").exists()


def test_a_store_that_is_away_leaves_runs_unknown_and_stops_nobody(project, monkeypatch):
    for address in STAGES:
        run_stage(address)
    shutil.rmtree(journal.folder())
    bare = {address: left_by(address) for address in STAGES}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    delivery.recall(bare, "toy")
    assert not any(record.known for record in bare.values())


def test_a_result_that_nobody_here_knows_is_shown_without_times(project, monkeypatch):
    for address in STAGES:
        run_stage(address, size=1.0)
    shutil.rmtree(journal.folder())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/other.db")
    for times in (1, 2):  # the second publication finds what the first has shown
        bare = {address: left_by(address) for address in STAGES}
        result = publish(Store("toy"), shown(bare), key=f"sync:{times}")
        opened = Store("toy")
        assert kinds(opened).count("stage") == len(STAGES)
    run = opened.client.get_run(result["candidates"]["dismec"])
    assert "train_seconds" not in run.data.metrics
    origin = json.loads(run.data.tags["lineage.train_linear/dismec"])
    assert origin["host"] == "unknown"


def test_a_stage_is_a_child_run_with_params_metrics_and_environment(project):
    with tracking.stage("train_linear", "dismec", Toy(C=2.0)) as run:
        run.log({"loss": 0.5}, step=1)
        run.log({"loss": 0.25}, step=2)
        run.metrics({"weights": 10})
        run.note(device="cpu")
    deliver()
    record = left_by("train_linear@dismec")
    store = Store("toy")
    child = store.client.get_run(record.run_id)
    assert child.info.status == "FINISHED"
    assert child.info.run_name == "train_linear/dismec"
    assert child.data.params == {"C": "2.0"}
    assert child.data.metrics["weights"] == 10
    assert child.data.tags["device"] == "cpu"
    assert child.data.tags["git.dirty"] == "false"
    assert child.data.tags["version.numpy"]
    assert [p.value for p in store.client.get_metric_history(record.run_id, "loss")] == [0.5, 0.25]
    parent = store.client.get_run(child.data.tags["mlflow.parentRunId"])
    assert parent.info.status == "RUNNING"
    assert parent.data.params["train_linear.dismec.C"] == "1.0"


def test_two_stages_share_one_parent_and_a_finished_parent_is_not_reused(project):
    first, second = run_stage("download"), run_stage("preprocess")
    assert first.parent_run_id == second.parent_run_id
    Store("toy").finish(first.parent_run_id, "FINISHED")
    assert run_stage("preprocess").parent_run_id != first.parent_run_id


def test_an_experiment_name_is_the_key_and_the_name_of_the_parent(project, monkeypatch):
    monkeypatch.setenv("DVC_EXP_NAME", "lofty-axes")
    monkeypatch.setenv("DVC_EXP_BASELINE_REV", "0123456789abcdef")
    assert pipeline_key().startswith("exp:0123456789ab:lofty-axes:")
    record = run_stage("download")
    assert Store("toy").client.get_run(record.parent_run_id).info.run_name == "lofty-axes"


def test_the_same_state_in_another_place_does_not_go_on_with_this_ones_parent(project, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/mlflow.db")
    here = run_stage("download").parent_run_id
    colleague = project / "colleague"
    colleague.mkdir()
    monkeypatch.setenv("DVC_ROOT", str(colleague))
    assert run_stage("download").parent_run_id != here
    monkeypatch.setenv("DVC_ROOT", str(project))
    assert run_stage("preprocess").parent_run_id == here


def test_a_failing_stage_leaves_the_reason_and_no_record_and_is_resumed(project):
    def fail():
        with tracking.stage("train_linear", "dismec", Toy()) as run:
            run.log({"loss": 1.0}, step=1)
            raise ValueError("labels are gone")

    with pytest.raises(ValueError, match="gone"):
        fail()
    deliver()
    assert not Path("data/runs/train_linear@dismec.json").exists()
    store = Store("toy")
    failed = next(run for run in everything(store) if run.data.tags[KIND] == "stage")
    parent = next(run for run in everything(store) if run.data.tags[KIND] == "parent")
    assert failed.info.status == parent.info.status == "FAILED"
    assert failed.data.tags["failure"] == "ValueError: labels are gone"
    assert "labels are gone" in parent.data.tags["failure"]
    again = run_stage("train_linear@dismec")
    assert again.parent_run_id == parent.info.run_id
    assert store.client.get_run(parent.info.run_id).info.status == "RUNNING"


def test_a_store_that_is_away_does_not_stop_a_stage(project, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    record = run_stage("download", files=3)
    assert record.run_id is None
    assert record.metrics["files"] == 3
    assert record.status == "FINISHED"


def test_publish_shows_every_candidate_and_closes_the_parent(project):
    records = {address: run_stage(address, size=1.0) for address in STAGES}
    result = publish(Store("toy"), shown(records))
    store = Store("toy")
    assert kinds(store) == ["candidate"] * 2 + ["parent"] + ["stage"] * 5
    parent = store.client.get_run(result["parent_run_id"])
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["train_linear/dismec/size"] == 1.0
    assert set(result["stages"].values()) == {"executed"}
    run = store.client.get_run(result["candidates"]["dismec-rerank"])
    assert run.data.metrics["p_at_1"] == 55.0
    assert run.data.tags["family"] == "linear"
    assert run.data.tags["tail_methods"] == "rerank"
    assert {"train_linear.C", "rerank.C", "candidate"} <= set(run.data.params)


def test_stages_of_an_earlier_run_count_as_cached(project):
    records = {address: run_stage(address, size=1.0) for address in STAGES}
    first = publish(Store("toy"), shown(records))
    records["rerank@dismec-rerank"] = run_stage("rerank@dismec-rerank", size=2.0)
    second = publish(Store("toy"), shown(records))
    assert first["parent_run_id"] != second["parent_run_id"]
    cached = {a for a, source in second["stages"].items() if source == "cached"}
    assert cached == set(STAGES) - {"rerank@dismec-rerank"}
    parent = Store("toy").client.get_run(second["parent_run_id"])
    assert parent.data.metrics["download/size"] == 1.0


def test_records_unknown_to_the_store_are_replayed(project, monkeypatch):
    records = {address: run_stage(address, size=1.0) for address in STAGES}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/other.db")
    publish(Store("toy"), shown(records))
    runs = [run for run in everything(Store("toy")) if run.data.tags[KIND] == "stage"]
    assert len(runs) == len(STAGES)
    assert all(run.data.tags["coattail.replayed"] == "true" for run in runs)
    assert all(run.data.metrics["size"] == 1.0 for run in runs)


def test_open_parents_are_found(project):
    record = run_stage("download")
    assert [run.info.run_id for run in open_parents(Store("toy"))] == [record.parent_run_id]


def test_four_processes_find_one_parent_and_lose_nothing(project):
    Path("mlflow.db").unlink()  # whoever comes first makes the tables
    code = (
        "import sys; from coattail import tracking\n"
        "with tracking.stage('train_linear', sys.argv[1], None) as run:\n"
        "    for step in range(50): run.log({'loss': step}, step)\n"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", code, f"v{i}"], env=dict(os.environ))
        for i in range(4)
    ]
    assert [worker.wait(timeout=900) for worker in workers] == [0] * 4
    wait_for(lambda: not outbox.waiting())
    store = Store("toy")
    assert kinds(store) == ["parent"] + ["stage"] * 4
    for run in everything(store):
        if run.data.tags[KIND] == "stage":
            assert len(store.client.get_metric_history(run.info.run_id, "loss")) == 50


def test_git_state_tells_edits_from_outputs(project):
    assert git_tags()["git.dirty"] == "false"
    Path("params.yaml").write_text("{}")
    assert git_tags()["git.dirty"] == "true"
    assert git_tags()["git.edits"] == "params.yaml"


def test_a_new_file_of_code_counts_as_an_edit_but_a_note_does_not(project):
    Path("note.txt").touch()
    assert git_tags()["git.dirty"] == "false"
    Path("src").mkdir()
    Path("src/new.py").touch()
    assert git_tags()["git.edits"] == "src/new.py"


def test_open_parents_of_other_people_and_machines_are_left_alone(project):
    record = run_stage("download")
    store = Store("toy")
    assert len(open_parents(store)) == 1
    store.tags(record.parent_run_id, {"machine.host": "another"})
    assert open_parents(store) == []
    store.tags(record.parent_run_id, git_tags() | {"machine.host": os.uname().nodename})
    store.tags(record.parent_run_id, {"mlflow.user": "somebody"})
    assert open_parents(store) == []


def test_a_stage_that_was_killed_without_a_word_ends_with_its_pipeline(project):
    records = {address: run_stage(address) for address in STAGES}
    store = Store("toy")
    parent = records["download"].parent_run_id
    lost = store.create("train_linear/dismec", "stage", parent, {})
    assert publish(store, shown(records))["parent_run_id"] == parent
    assert store.client.get_run(lost).info.status == "KILLED"
    assert store.client.get_run(records["download"].run_id).info.status == "FINISHED"


def test_data_hash_is_the_one_in_dvc_lock(project):
    assert data_hash() is None
    lock = {"stages": {"preprocess": {"outs": [{"path": "data/features", "md5": "ab.dir"}]}}}
    Path("dvc.lock").write_text(json.dumps(lock))
    assert data_hash() == "ab.dir"


def test_flatten_names_nested_values_by_dots():
    assert dict(flatten({"a": {"b": 1, "c": {}}, "d": [1]})) == {"a.b": 1, "a.c": {}, "d": [1]}
