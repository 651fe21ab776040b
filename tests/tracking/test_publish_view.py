"""What a person finds in MLflow after `publish`: numbers, descriptions, views, pictures."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import mlflow
import pytest
from mlflow.exceptions import MlflowException

from coattail.pipeline.candidates import candidates
from coattail.tracking.candidate_metrics import results
from coattail.tracking.publishing import experiment_page
from coattail.tracking.publishing.publish import publish
from coattail.tracking.publishing.shown import Shown
from coattail.tracking.record import Point, RunRecord
from coattail.tracking.store import Store, insist

PARAMS = {
    "dataset": {"name": "toy"},
    "train_linear": {
        "dismec": {
            "model": "ovr",
            "train": "features/tfidf/train",
            "C": 1.0,
            "weighting": "pwcb",
        }
    },
}
STARTED, ENDED = 1_000_000, 1_012_345


@pytest.fixture
def store(tmp_path, monkeypatch, empty_store):
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "DVC_EXP_NAME", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    Path("params.yaml").write_text(json.dumps(PARAMS))
    shutil.copy(empty_store, "mlflow.db")
    return Store("toy")


def shown() -> Shown:
    addresses = ("download", "preprocess", "train_linear@dismec")
    records = {}
    for address in addresses:
        stage, _, variant = address.partition("@")
        given = PARAMS["train_linear"]["dismec"] if variant else {}
        record = RunRecord(stage, variant or None, given, STARTED, ENDED, "FINISHED")
        record.metrics = {"megabytes": 2.113671, "texts": 123456.0, "share": 0.000123456}
        records[address] = record
    # Another stage ran later, as when a download is forced; a candidate's time is its own.
    records["download"].ended = ENDED + 10**6
    return Shown(
        "toy",
        PARAMS,
        records,
        candidates(PARAMS),
        {"dismec": {"p_at_1": 60.123456, "psp_at_5": 50.98765, "odd": 1.0}},
        "dismec",
        note="the leaderboard",
        notes={"dismec": "how it stands"},
        headline=("p_at_1", "psp_at_5"),
    )


def test_a_candidate_shows_itself_and_not_the_machine(store):
    result = publish(store, shown())
    run = store.client.get_run(result["candidates"]["dismec"])
    assert run.data.metrics == {
        "p_at_1": 60.12,
        "psp_at_5": 50.99,
        "odd": 1.0,
        "train_seconds": 12.35,
    }
    assert not [tag for tag in run.data.tags if tag.startswith(("machine.", "version."))]
    assert run.data.tags["family"] == "linear"
    assert run.data.tags["tail_methods"] == "pwcb"
    assert run.data.tags["pipeline"].startswith("repro-")
    assert run.data.tags[experiment_page.NOTE].endswith("how it stands")
    assert (run.info.start_time, run.info.end_time) == (STARTED, ENDED)
    assert run.data.params["train_linear.weighting"] == "pwcb"


def test_the_parent_has_the_main_figures_of_the_best_and_says_where_it_ran(store):
    result = publish(store, shown())
    parent = store.client.get_run(result["parent_run_id"])
    best = {k: v for k, v in parent.data.metrics.items() if k.startswith("best/")}
    assert best == {"best/p_at_1": 60.12, "best/psp_at_5": 50.99}
    assert parent.data.metrics["train_linear/dismec/megabytes"] == 2.11
    assert parent.data.metrics["train_linear/dismec/texts"] == 123456.0
    assert parent.data.metrics["train_linear/dismec/share"] == 0.00012
    assert "version.numpy" in parent.data.tags
    assert parent.data.tags[experiment_page.NOTE].endswith("the leaderboard")
    assert "report.html" not in parent.data.tags[experiment_page.NOTE], (
        "there is no report to lead to"
    )


def test_registered_version_says_why_it_is_the_champion_and_what_it_loses(store):
    told = replace(
        shown(),
        reason="dismec, best PSP@5 on validation.",
        warnings=("dismec loses 4.10 P@5",),
        facts={"chosen_by": "PSP@5 on validation"},
        log_model=log_something,
    )
    result = publish(store, told)
    version = store.client.get_model_version_by_alias("coattail-toy", "champion")
    assert version.run_id == result["candidates"]["dismec"]
    assert version.description.startswith("Champion: dismec, best PSP@5 on validation.\n")
    assert "**dismec loses 4.10 P@5**" in version.description
    assert version.tags["chosen_by"] == "PSP@5 on validation"
    assert version.tags["candidate"] == "dismec"
    model = store.client.get_registered_model("coattail-toy")
    assert "models:/coattail-toy@champion" in model.description
    note = store.client.get_run(result["parent_run_id"]).data.tags[experiment_page.NOTE]
    assert "Champion: dismec, best PSP@5 on validation.\n\n**dismec loses 4.10 P@5**" in note


def by(who: str, told: Shown, value: float = 50.0) -> Shown:
    """What somebody publishes: another value is another model."""
    told.records["train_linear@dismec"].metrics["share"] = value
    told.records["train_linear@dismec"].tags["user"] = who
    made = {"user": who, "git.commit": "0" * 40, "git.dirty": "false", "data.md5": "d"}
    return replace(
        told,
        made=made,
        best_valid=value,
        facts={"chosen_by": "PSP@5 on validation"},
        log_model=log_something,
    )


def test_one_result_is_one_run_and_one_version_whoever_shows_it(store):
    first = publish(store, by("ann", shown()), "anns")
    second = publish(store, replace(by("ann", shown()), made=by("bob", shown()).made), "bobs")
    assert second["candidates"] == first["candidates"]
    assert second["registered_version"] == first["registered_version"] == "1"
    run = store.client.get_run(first["candidates"]["dismec"])
    assert (run.data.tags["author"], run.data.tags["also_by"]) == ("ann", "bob")
    names = [store.client.get_run(one["parent_run_id"]).info.run_name for one in (first, second)]
    assert names == ["repro-0000000 ann: dismec", "repro-0000000 bob: no news"]
    # Both executions compare, though one of them has no run of its own below it.
    for one in (first, second):
        assert set(results(one["parent_run_id"])[1]) == {"dismec"}
    # A third execution by either adds nothing.
    publish(store, by("ann", shown()), "again")
    run = store.client.get_run(first["candidates"]["dismec"])
    assert run.data.tags["also_by"] == "bob"
    assert len(store.search("tags.`coattail.kind` = 'candidate'")) == 1


def test_champion_moves_to_a_better_model_and_stays_before_a_worse_one(store):
    def champion() -> str:
        return str(store.client.get_model_version_by_alias("coattail-toy", "champion").version)

    publish(store, by("ann", shown(), 50.0), "a")
    publish(store, by("bob", shown(), 40.0), "b")
    assert champion() == "1", "a worse one is a version and no more"
    publish(store, by("bob", shown(), 60.0), "c")
    assert champion() == "3"
    publish(store, by("ann", shown(), 50.0), "d")
    assert champion() == "3", "what is shown again does not take it back"
    elsewhere = by("ann", shown(), 10.0)
    publish(store, replace(elsewhere, made=elsewhere.made | {"data.md5": "other"}), "e")
    assert champion() == "4", "figures on other data do not compare"


def log_something(_name: str) -> str:
    """The smallest model that MLflow takes, into the active run."""

    class Echo(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input, params=None):
            return model_input

    info = mlflow.pyfunc.log_model(name="model", python_model=Echo(), pip_requirements=["mlflow"])
    return str(info.model_uri)


def test_report_tables_and_pictures_are_artifacts_under_telling_names(store, tmp_path):
    for name in ("report.html", "front.json"):
        (tmp_path / name).write_text("<p>hello</p>")
    files = {"report": [tmp_path / "report.html"], "evaluation": [tmp_path / "front.json"]}
    full = replace(shown(), files=files, pictures=lambda name: {f"{name or 'all'}.png": b"PNG"})
    result = publish(store, full)
    parent, run = result["parent_run_id"], result["candidates"]["dismec"]

    def listed(run_id: str, folder: str) -> list[str]:
        return [one.path for one in store.client.list_artifacts(run_id, folder)]

    assert listed(parent, "report") == ["report/report.html"]
    assert listed(parent, "evaluation") == ["evaluation/front.json"]
    assert listed(parent, "pictures") == ["pictures/all.png"]
    assert listed(run, "pictures") == ["pictures/dismec.png"]
    address = experiment_page.run(store, parent, "report/report.html")
    for one in (parent, run):
        assert (
            f"[report.html]({address})" in store.client.get_run(one).data.tags[experiment_page.NOTE]
        )


def test_the_experiment_gets_a_view_of_candidates_and_keeps_a_description_of_its_own(store):
    experiment_page.describe(store, ["p_at_1", "psp_at_5"], "psp_at_5")
    tags = store.client.get_experiment(store.experiment_id).tags
    state = json.loads(tags[f"{experiment_page.SHARED}{experiment_page.KEY}"])
    assert state["searchFilter"] == "tags.`coattail.kind` = 'candidate'"
    assert state["orderByKey"] == "metrics.`psp_at_5`"
    columns = state["selectedColumns"]
    assert columns[:3] == ["tags.`author`", "metrics.`p_at_1`", "metrics.`psp_at_5`"]
    assert {"tags.`dataset`", "tags.`git.commit`"} <= set(columns)
    assert experiment_page.candidates(store) in tags[experiment_page.NOTE]
    store.client.set_experiment_tag(store.experiment_id, experiment_page.NOTE, "Mine.")
    experiment_page.describe(store, ["p_at_1"], "p_at_1")
    tags = store.client.get_experiment(store.experiment_id).tags
    assert tags[experiment_page.NOTE] == "Mine."
    assert "metrics.`p_at_1`" in tags[f"{experiment_page.SHARED}{experiment_page.KEY}"]


def test_several_who_publish_at_once_do_not_trip_over_each_other(store):
    stores = [Store(f"race-{number}") for number in range(8) for _ in range(2)]

    def describe(one):
        experiment_page.describe(one, ["p_at_1"], "p_at_1")
        return store.client.get_experiment(one.experiment_id).tags[experiment_page.NOTE]

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(describe, stores))


def test_several_who_fill_the_same_run_at_once_do_not_trip_over_each_other(store):
    runs = [store.client.create_run(store.experiment_id).info.run_id for _ in range(12)]

    def fill(run):
        store.params(run, {"train": {f"p{i}": i for i in range(20)}})
        store.tags(run, {f"t{i}": "x" for i in range(20)})
        store.metrics(run, [Point("m", float(i), i, 1000 + i) for i in range(5)])
        store.dataset(run, "demo", "0123")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(fill, [run for run in runs for _ in range(3)]))
    for run in runs:
        data = store.client.get_run(run).data
        assert len(data.params) == 20
        assert data.metrics == {"m": 4.0}
        assert len(store.client.get_metric_history(run, "m")) == 5


def test_a_row_that_another_client_inserted_is_written_again_and_other_errors_are_not():
    complaints = iter(["(sqlite3.IntegrityError) UNIQUE constraint", "psycopg UniqueViolation", ""])

    def write():
        complaint = next(complaints)
        if complaint:
            raise MlflowException(complaint)
        return "written"

    assert insist(write) == "written"
    complaints = iter(["(sqlite3.IntegrityError)"] * 4)
    with pytest.raises(MlflowException, match="IntegrityError"):
        insist(write)
    complaints = iter(["no such table", ""])
    with pytest.raises(MlflowException, match="no such table"):
        insist(write)
