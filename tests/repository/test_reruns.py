"""What an edit, a cache, a colleague or a queue makes DVC run: on a tiny project that has run."""

from __future__ import annotations

import json
import shutil
import time

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.models.linear.linear_params import OvrParams
from coattail.models.linear.ovr import Ovr
from coattail.pipeline.candidates import candidates
from coattail.serving.tagger import Tagger
from tests.project import Clone, stage_sources

pytestmark = [pytest.mark.pipeline]

NO_MODELS = {"publish": {"models": "none"}}
"""Where a test is not about models in MLflow: logging one takes longer than training it."""


def executed(parent) -> set[str]:
    return {name for name, source in stage_sources(parent).items() if source == "executed"}


def test_a_forced_stage_gives_one_new_parent_with_the_rest_cached(tiny_copy):
    tiny_copy.dvc("repro", "-f", "-s", "evaluate")
    # It gives the bytes of before, so nothing behind it runs by itself.
    assert "Running stage" not in tiny_copy.dvc("repro")
    tiny_copy.dvc("repro", "-f", "-s", "publish")
    (parent,) = tiny_copy.runs("parent")
    assert executed(parent) == {"evaluate"}
    assert parent.data.metrics["preprocess/texts"] == 460
    assert parent.info.status == "FINISHED"


def test_an_experiment_reruns_only_what_its_param_touches_and_the_way_back_is_cached(tiny_copy):
    tiny_copy.edit(NO_MODELS)
    tiny_copy.dvc("exp", "run", "-n", "stiffer", "-S", "train_linear.dismec.C=0.5")
    (parent,) = tiny_copy.runs("parent")
    assert parent.info.run_name == "stiffer"
    ran = executed(parent)
    assert {"train_linear/dismec", "rerank/dismec-rerank", "evaluate"} <= ran
    assert not {"download", "preprocess", "build_plt/flat"} & ran
    assert "stiffer" in tiny_copy.dvc("exp", "show", "--csv")
    tiny_copy.edit({"train_linear.dismec": {"C": 1.0}})
    output = tiny_copy.dvc("repro")
    assert "is cached - skipping run" in output
    assert "> python -m stages.train_linear" not in output


def test_a_refit_ranks_validation_without_it_and_test_with_it(tiny_copy, monkeypatch):
    valid = (tiny_copy.folder / "data/ranked/dismec/valid.npz").read_bytes()
    tiny_copy.edit({"train_linear.dismec": {"refit": True}})
    tiny_copy.dvc("repro", "-s", "train_linear@dismec")
    assert (tiny_copy.folder / "data/ranked/dismec/valid.npz").read_bytes() == valid
    monkeypatch.chdir(tiny_copy.folder)
    features = Features("data/features")
    X, Y = (sp.vstack([part("train"), part("valid")]) for part in (features.X, features.Y))
    given = {k: v for k, v in tiny_copy.params()["train_linear"]["dismec"].items() if k != "refit"}
    wanted = Ovr(OvrParams(**given)).fit(X.tocsr(), Y.tocsr()).predict(features.X("test"), 100)
    found = TopK.load("data/ranked/dismec/test.npz")
    np.testing.assert_array_equal(found.labels, wanted.labels)
    top = Tagger.of_workspace("dismec").rank(features.texts("test"), 100)
    np.testing.assert_array_equal(top.labels, wanted.labels)


def test_a_comment_reruns_only_code_and_a_change_what_reaches_it(tiny_copy):
    path = tiny_copy.folder / "src" / "coattail" / "models" / "ranking" / "trade_off.py"
    source = path.read_text()
    path.write_text(source + "\n# a comment\n")
    output = tiny_copy.dvc("repro")
    assert "Running stage 'code'" in output
    assert output.count("Running stage") == 1
    path.write_text(source + "\nSOMETHING = 1\n")
    # A stage started past `code` would file its results under the code of before.
    refused = tiny_copy.dvc("repro", "-f", "-s", "rerank@dismec-rerank", code=255)
    assert "trade_off.py" in refused
    assert "dvc repro code" in refused
    tiny_copy.dvc("repro", "-q", "code")
    status = tiny_copy.dvc("status")
    assert "rerank@dismec-rerank" in status
    assert "train_linear" not in status
    tiny_copy.dvc("repro", "rerank@dismec-rerank")
    path.write_text(source)
    assert "> python -m stages.rerank" not in tiny_copy.dvc("repro")


def test_leftovers_of_somebody_else_cost_nothing_and_change_nothing(tiny_copy):
    lock = (tiny_copy.folder / "dvc.lock").read_bytes()
    data = tiny_copy.folder / "data"
    for name in ("models", "ranked", "plt"):
        (data / name / "former").mkdir()
        (data / name / "former" / "x").touch()
    shutil.copy(data / "runs/train_linear@dismec.json", data / "runs/train_linear@former.json")
    output = tiny_copy.dvc("repro")
    assert output.count("Running stage") == 1
    assert "Running stage 'candidates'" in output
    assert not (data / "models" / "former").exists()
    # A variant that failed half-way and was taken out again has left a ranking and no result.
    (data / "ranked" / "failed").mkdir()
    (data / "ranked" / "failed" / "valid.npz").touch()
    assert tiny_copy.dvc("repro").count("Running stage") == 1
    assert not (data / "ranked" / "failed").exists()
    assert (tiny_copy.folder / "dvc.lock").read_bytes() == lock


def test_a_misspelt_parameter_stops_the_stage_with_a_clear_sentence(tiny_copy):
    tiny_copy.edit({"train_linear.dismec": {"prunning": 0.1}})
    output = tiny_copy.dvc("repro", code=255)
    assert "train_linear.dismec.prunning: unknown parameter; did you mean 'prune'?" in output
    assert "Traceback" not in output


def test_results_of_a_variant_that_is_gone_do_not_linger(tiny_copy):
    (gone,) = tiny_copy.params()["rerank"]
    tiny_copy.edit({"": {"rerank": {}}} | NO_MODELS)
    tiny_copy.dvc("repro")
    assert not (tiny_copy.folder / "data" / "ranked" / gone).exists()
    assert not (tiny_copy.folder / "metrics" / f"{gone}.json").exists()
    assert "Running stage" not in tiny_copy.dvc("repro")


def test_a_pull_into_a_fresh_clone_runs_nothing_and_can_be_shown(tiny, tiny_copy, tmp_path):
    remote = tmp_path / "remote"
    tiny_copy.dvc("remote", "add", "--local", "-d", "shared", str(remote))
    tiny_copy.dvc("push", "--run-cache")
    tiny_copy.run("git", "clone", "-q", str(tiny_copy.folder), str(tmp_path / "fresh"))
    fresh = Clone(tmp_path / "fresh")
    fresh.dvc("remote", "add", "--local", "-d", "shared", str(remote))
    fresh.dvc("pull", "--run-cache")
    assert "Running stage" not in fresh.dvc("repro")
    assert fresh.results() == tiny.results()
    fresh.run("coattail", "experiment", "sync")
    assert {run.info.run_name for run in fresh.runs("candidate")} == set(candidates(fresh.params()))
    assert len(fresh.runs("parent")) == 1
    assert "already" in fresh.run("coattail", "experiment", "sync")
    assert len(fresh.runs("parent")) == 1


# --- queues and searches -------------------------------------------------------------------------


def test_a_queue_takes_ranges_and_lists(tiny_copy):
    tiny_copy.dvc(
        *("exp", "run", "--queue", "-S", "train_linear.dismec.C=range(0.5,2,0.5)"),
        *("-S", "+train_linear.dismec.weighting=none,pw"),
    )
    assert tiny_copy.dvc("queue", "status").count("Queued") == 6
    tiny_copy.dvc("queue", "remove", "--all")


def test_more_queued_experiments_than_workers_are_all_there(tiny_copy):
    tiny_copy.edit(NO_MODELS)
    tiny_copy.commit("no models to MLflow")
    names = ["draws-20", "draws-30", "draws-40"]
    for name in names:
        change = f"evaluate.resamples={name[-2:]}"
        tiny_copy.dvc("exp", "run", "--queue", "-n", name, "-S", change)
    tiny_copy.dvc("queue", "start", "-j", "2")
    deadline = time.monotonic() + 900
    while True:
        status = tiny_copy.dvc("queue", "status")
        if "Queued" not in status and "Running" not in status:
            break
        assert time.monotonic() < deadline, status
        time.sleep(3)  # asking takes a second of a processor
    assert status.count("Success") == len(names), status
    parents = tiny_copy.runs("parent")
    assert {run.info.run_name for run in parents} == set(names)
    assert {run.info.status for run in parents} == {"FINISHED"}
    for name in names:
        assert "database is locked" not in tiny_copy.dvc("queue", "logs", name)


def test_tuning_leaves_the_best_on_validation_as_an_ordinary_experiment(tiny_copy):
    tiny_copy.edit(NO_MODELS)
    tiny_copy.commit("no models to MLflow")
    before = tiny_copy.results()
    words = ("tune", "dismec", "--over", "C=0.01,3", "--over", "weighting=none", "--trials", "2")
    output = tiny_copy.run("coattail", *words)
    assert "made experiment tune-dismec-best" in output
    assert tiny_copy.results() == before, "the workspace stays as it was"
    assert tiny_copy.run("git", "status", "--porcelain") == ""
    scores = {
        float(run.data.params["C"]): run.data.metrics["valid_psp_at_5"]
        for run in tiny_copy.runs("trial")
    }
    best = max(scores, key=scores.get)
    found = json.loads(tiny_copy.run("coattail", "compare", "HEAD", "tune-dismec-best", "--json"))
    assert {row["source"] for row in found} == {"HEAD", "tune-dismec-best"}
    (run,) = [
        run
        for run in tiny_copy.runs("candidate")
        if (run.info.run_name, run.data.tags["pipeline"]) == ("dismec", "tune-dismec-best")
    ]
    assert float(run.data.params["train_linear.C"]) == best
    assert "there is already experiment" in tiny_copy.run("coattail", *words)
    tiny_copy.dvc("exp", "apply", "tune-dismec-best")
    assert tiny_copy.params()["train_linear"]["dismec"]["C"] == best
