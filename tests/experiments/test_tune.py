"""`coattail tune` with real Optuna, SQLite, MLflow and processes; only the learner is a toy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.arrays import TopK, load_csr, save_csr
from coattail.errors import ConfigError, DataError, ModelError
from coattail.evaluation import metrics
from coattail.evaluation.leaderboard import plain_text
from coattail.experiments import search_plan, search_table, tune
from coattail.labels.frequency import counts, inverse_propensity
from coattail.tracking.store import KIND, Store

TEXTS, LABELS = 40, 5
PARAMS = {
    "dataset": {"name": "toy"},
    "build_plt": {"flat": {"method": "flat"}},
    "train_linear": {
        "dismec": {"model": "ovr", "train": "features/tfidf/train", "tree": "flat", "C": 0.1}
    },
    "train_deep": {"net": {"model": "xmlcnn", "tree": "flat", "epochs": 3}},
    "rerank": {"again": {"base": "dismec", "strategy": "propensity"}},
    "evaluate": {"ks": [1, 3, 5]},
}

# The closer C is to 3, the more validation texts are right; on test it is the other way round.
LINEAR = """
import os, time
from pathlib import Path
import numpy as np
from coattail.pipeline import runner; from coattail import tracking
from coattail.arrays import TopK
from coattail.errors import DataError
from coattail.models.linear.linear_params import LinearParams

def ranking(right):
    labels = np.tile(np.arange(5, dtype=np.int32), (40, 1))
    for text in range(40):
        place = 0 if text < right else 4
        labels[text, [place, text % 5]] = labels[text, [text % 5, place]]
    return TopK(labels, np.tile(np.linspace(1, 0, 5, dtype=np.float32), (40, 1)), "margin")

def main(variant):
    params = runner.section("train_linear", variant, LinearParams)
    with tracking.stage("train_linear", variant, params):
        if Path.cwd().name == os.environ.get("TOY_HANGS"):
            time.sleep(900)
        if params.weighting == "pw":
            raise DataError("weights of this kind break everything")
        right = int(40 - 10 * abs(np.log10(params.C / 3)))
        ranking(right).save(f"data/ranked/{variant}/valid.npz")
        ranking(40 - right).save(f"data/ranked/{variant}/test.npz")
        Path("data/models").mkdir(exist_ok=True)

if __name__ == "__main__":
    runner.run(main)
"""

DEEP = """
import time
from coattail.pipeline import runner; from coattail import tracking
from coattail.models.deep.deep_params import DeepParams
from stages.train_linear import ranking

def main(variant):
    params = runner.section("train_deep", variant, DeepParams)
    with tracking.stage("train_deep", variant, params) as run:
        for epoch in range(params.epochs):
            # By another metric the order of the trials would be the other way round.
            run.log({"valid_p_at_1": 1 - params.dropout, "valid_ndcg_at_5": params.dropout}, epoch)
        ranking(int(40 * (1 - params.dropout))).save(f"data/ranked/{variant}/valid.npz")

if __name__ == "__main__":
    runner.run(main)
"""


RERANK = """
from coattail.pipeline import runner; from coattail import tracking
from coattail.arrays import TopK
from coattail.models.ranking.trade_off import RerankParams
from stages.train_linear import ranking

def main(variant):
    params = runner.section("rerank", variant, RerankParams)
    with tracking.stage("rerank", variant, params):
        TopK.load(f"data/ranked/{params.base}/valid.npz")
        ranking(int(40 * params.power)).save(f"data/ranked/{variant}/valid.npz")

if __name__ == "__main__":
    runner.run(main)
"""


def toy(folder: Path) -> Path:
    folder.mkdir()
    (folder / "params.yaml").write_text(json.dumps(PARAMS))
    (folder / "stages").mkdir()
    (folder / "stages" / "__init__.py").write_text("")
    (folder / "stages" / "train_linear.py").write_text(LINEAR)
    (folder / "stages" / "train_deep.py").write_text(DEEP)
    (folder / "stages" / "rerank.py").write_text(RERANK)
    labels = folder / "data" / "features" / "labels"
    true = sp.csr_matrix(np.eye(LABELS, dtype=np.float32)[np.arange(TEXTS) % LABELS])
    save_csr(labels / "valid", true)
    save_csr(labels / "train", true[np.minimum(np.arange(3 * TEXTS) % 12, 10)])  # 0 is frequent
    np.save(labels / "inverse_propensity.npy", np.linspace(1, 2, LABELS))
    (labels / "propensity.json").write_text('{"A": 0.55, "B": 1.5}')
    np.save(labels / "bands.npy", np.array([0, 0, 1, 1, 2], np.int8))
    (folder / "data" / "features" / "tfidf" / "train").mkdir(parents=True)
    (folder / "data" / "plt" / "flat").mkdir(parents=True)
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch, empty_store):
    for name in ("MLFLOW_TRACKING_URI", "DVC_ROOT", "DVC_EXP_NAME", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    folder = toy(tmp_path / "project")
    shutil.copy(empty_store, folder / "mlflow.db")
    monkeypatch.chdir(folder)
    return folder


def search(over: list[str], trials: int, variant: str = "dismec", **more) -> tune.SearchResult:
    return tune.tune(search_plan.plan(variant, over, "p_at_1", trials, **more))


def runs(kind: str) -> dict[str, object]:
    store = Store("toy")
    return {run.info.run_name: run for run in store.search(f"tags.`{KIND}` = '{kind}'")}


def drawn(outcome: tune.SearchResult) -> list[float]:
    return [values["C"] for _, _, _, values in outcome.trials]


def test_the_best_on_validation_is_found_and_the_workspace_stays_as_it_was(project):
    before = {path: path.stat().st_mtime_ns for path in Path("data/features").rglob("*")}
    outcome = search(["C=0.01..100:log"], 4)
    values = {number: value for number, _, value, _ in outcome.trials}
    assert outcome.trials[0][3] == {"C": 0.1}, "the present value comes first"
    assert outcome.value == max(values.values())
    closest = min(outcome.trials, key=lambda t: abs(np.log10(t[3]["C"] / 3)))
    assert outcome.value == closest[2], "judged on validation; on test the order is reversed"
    assert not Path("data/models").exists()
    assert not Path("data/ranked").exists()
    assert before == {path: path.stat().st_mtime_ns for path in Path("data/features").rglob("*")}
    (parent,) = runs("tune").values()
    trials = runs("trial")
    assert set(trials) == {f"dismec-trial-{n:03d}" for n in range(4)}
    assert {t.data.tags["mlflow.parentRunId"] for t in trials.values()} == {parent.info.run_id}
    first = trials["dismec-trial-000"]
    assert first.data.params["C"] == "0.1"
    assert first.data.params["weighting"] == "none"
    assert first.data.metrics["valid_p_at_1"] == pytest.approx(values[0], abs=0.01)
    assert first.data.tags["state"] == "complete"
    assert not [name for name in first.data.metrics if not name.startswith("valid_")]
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["valid_p_at_1"] == pytest.approx(outcome.value, abs=0.01)
    assert parent.data.params["over.C"] == "0.01..100:log"
    text = plain_text(search_table.table(outcome, plain=True))
    assert f"*{outcome.value:.2f}" in text
    assert search(["C=0.01..100:log"], 4) == outcome, "asked again, it trains nothing"
    assert len(runs("trial")) == 4
    assert len(search(["C=0.01..100:log"], 5).trials) == 5


def test_an_interrupted_search_goes_on_and_ends_like_one_that_was_not(project, tmp_path):
    command = ["tune", "dismec", "--over", "C=0.01..100:log", "--trials", "4", "--no-run"]
    words = [str(Path(sys.executable).parent / "coattail"), *command, "--maximise", "p_at_1"]
    env = os.environ | {"TOY_HANGS": "trial-002"}
    child = subprocess.Popen(
        words,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # A shell's background jobs, and so these tests in one, inherit that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 600
        while not list(Path("data/tune").glob("*/trial-002/journal.json")):
            assert child.poll() is None, child.communicate()[0].decode()
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=300)[0].decode()
    assert child.returncode == 130, said
    assert "goes on from here" in said
    assert "Traceback" not in said
    states = {name: run.data.tags["state"] for name, run in runs("trial").items()}
    assert states["dismec-trial-002"] == "interrupted"
    (parent,) = runs("tune").values()
    assert parent.info.status == "KILLED"
    resumed = search(["C=0.01..100:log"], 4)
    assert [state for _, state, _, _ in resumed.trials] == ["complete"] * 4
    assert len(runs("tune")) == 1
    os.chdir(toy(tmp_path / "other"))
    assert drawn(search(["C=0.01..100:log"], 4)) == drawn(resumed)
    assert drawn(search(["C=0.01..100:log"], 4, seed=1))[1:] != drawn(resumed)[1:]


def test_validation_is_judged_by_what_training_texts_alone_tell_of_propensities(project):
    judge = search_plan.Judge(PARAMS)
    top = TopK(np.zeros((TEXTS, 1), np.int32), np.zeros((TEXTS, 1), np.float32), "margin")
    train = load_csr(project / "data" / "features" / "labels" / "train")
    q = inverse_propensity(counts(train), train.shape[0], 0.55, 1.5)
    by_hand = metrics.judge(top, judge.Y, q).ratio("psp", 1).percent
    assert judge.score(top)["psp_at_1"] == pytest.approx(by_hand)


def test_a_failed_trial_keeps_its_reason_and_the_others_go_on(project):
    outcome = search(["weighting=pw,none,pwcb"], 20)
    assert [state for _, state, _, _ in outcome.trials] == ["fail", "complete", "complete"]
    assert outcome.best == {"weighting": "none"}
    failed = runs("trial")["dismec-trial-000"]
    assert failed.info.status == "FAILED"
    assert failed.data.tags["failure"] == "weights of this kind break everything"
    assert "fail" in plain_text(search_table.table(outcome, plain=True))


def test_when_every_trial_fails_the_error_says_why_and_the_next_try_tries_again(project):
    with pytest.raises(ModelError, match=r"(?s)no trial of dismec.*break everything.*tries again"):
        search(["weighting=pw"], 3)
    (parent,) = runs("tune").values()
    assert parent.info.status == "FAILED"
    script = Path("stages/train_linear.py")
    script.write_text(script.read_text().replace('== "pw"', '== "mended"'))
    assert search(["weighting=pw"], 3).best == {"weighting": "pw"}


def test_networks_that_fall_behind_are_stopped_early(project, monkeypatch):
    monkeypatch.setattr(tune, "STARTUP", 1)
    outcome = search(["dropout=0.1,0.5,0.0"], 9, variant="net")
    assert [state for _, state, _, _ in outcome.trials] == ["complete", "pruned", "complete"]
    assert outcome.best == {"dropout": 0.0}
    pruned = runs("trial")["net-trial-001"]
    assert (pruned.info.status, pruned.data.tags["state"]) == ("KILLED", "pruned")
    assert pruned.data.metrics["valid_p_at_1"] == 0.5
    kept = search(["dropout=0.1,0.5,0.0"], 9, variant="net", prune=False)
    assert {state for _, state, _, _ in kept.trials} == {"complete"}


def test_a_metric_that_networks_do_not_log_stops_no_trial(project, monkeypatch, caplog):
    monkeypatch.setattr(tune, "STARTUP", 1)
    caplog.set_level("INFO", logger="coattail")
    plan = search_plan.plan("net", ["dropout=0.1,0.5,0.0"], "coverage_at_1", 9)
    assert {state for _, state, _, _ in tune.tune(plan).trials} == {"complete"}
    assert "no coverage_at_1 per epoch" in caplog.text


def test_trials_are_stopped_by_what_is_maximised_alone(project):
    names = {
        metric: search_plan.plan("net", ["dropout=0.1,0.5"], metric, 9).watched
        for metric in ("psp_at_5", "p_at_1", "tail_recall_at_5", "micro_f1")
    }
    assert names == {
        "psp_at_5": "valid_psp_at_5",
        "p_at_1": "valid_p_at_1",
        "tail_recall_at_5": None,
        "micro_f1": None,
    }
    assert search_plan.plan("net", ["dropout=0.1,0.5"], "psp_at_5", 9, prune=False).watched is None
    assert search_plan.plan("dismec", ["C=1,2"], "psp_at_5", 9).watched is None


def test_other_code_and_other_trees_are_another_search(project):
    plan = search_plan.plan("dismec", ["C=1,2"], "p_at_1", 9)
    before = plan.name
    Path("data/code").mkdir()
    Path("data/code/train_linear.txt").write_text("python 3.11\n")
    after = plan.name
    assert after != before
    trees = {"flat": {"method": "flat"}, "bonsai": {"method": "kmeans"}}
    assert replace(plan, content={**plan.content, "build_plt": trees}).name != after


def test_a_store_that_is_away_does_not_stop_a_search(project, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert search(["weighting=none"], 1).best == {"weighting": "none"}


@pytest.mark.parametrize(
    ("variant", "over", "metric", "message"),
    [
        ("dismek", ["C=1..2"], "p_at_1", "no variant 'dismek'; did you mean 'dismec'"),
        ("again", ["powr=1..2"], "p_at_1", "unknown parameter 'powr'; did you mean 'power'"),
        ("dismec", [], "p_at_1", "nothing to vary"),
        ("dismec", ["c=1..2"], "p_at_1", "unknown parameter 'c'"),
        ("dismec", ["C=1..2"], "p_at_2", "no metric 'p_at_2'; did you mean 'p_at_"),
        ("dismec", ["C=1..2"], "micro_f1_tuned", "no metric 'micro_f1_tuned'"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(project, variant, over, metric, message):
    with pytest.raises(ConfigError) as error:
        search_plan.plan(variant, over, metric, 3)
    assert message in str(error.value)
    assert not Path("data/tune").exists()


def test_data_that_a_choice_needs_must_be_there(project):
    with pytest.raises(DataError, match="data/plt/bonsai is missing; run dvc repro"):
        search_plan.plan("dismec", ["tree=flat,bonsai"], "p_at_1", 3)
    with pytest.raises(DataError, match="data/ranked/dismec is missing; run dvc repro"):
        search_plan.plan("again", ["power=0,1"], "p_at_1", 3)


def test_a_reranking_is_searched_on_the_rankings_of_its_base(project):
    base = Path("data/ranked/dismec/valid.npz")
    labels = np.tile(np.arange(5, dtype=np.int32), (40, 1))
    scores = np.tile(np.linspace(0.9, 0.1, 5, dtype=np.float32), (40, 1))
    TopK(labels, scores).save(base)
    outcome = search(["power=0.0,1.0"], 3, variant="again")
    assert outcome.best == {"power": 1.0}
    before = search_plan.plan("again", ["power=0.0,1.0"], "p_at_1", 3).name
    TopK(labels, scores / 2).save(base)
    assert search_plan.plan("again", ["power=0.0,1.0"], "p_at_1", 3).name != before


def test_the_command_for_the_best_adds_what_params_yaml_does_not_have(project):
    plan = search_plan.plan("dismec", ["C=1..2", "weighting=none,pw"], "p_at_1", 3)
    words = plan.command({"C": 1.5, "weighting": "pw", "normalise": True}, "tune-dismec-best")
    assert words == [
        *("dvc", "exp", "run", "--temp", "-n", "tune-dismec-best"),
        *("-S", "train_linear.dismec.C=1.5"),
        *("-S", "+train_linear.dismec.weighting=pw"),
        *("-S", "+train_linear.dismec.normalise=true"),
    ]
