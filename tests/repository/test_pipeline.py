"""The whole pipeline in a temporary clone, with real DVC commands and a real MLflow store."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp
from ruamel.yaml import YAML

from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.models.linear.linear_params import OvrParams
from coattail.models.linear.ovr import Ovr
from coattail.pipeline.candidates import candidates, stage_addresses
from coattail.pipeline.stage_result import place, results
from coattail.serving.tagger import Tagger
from tests.project import ROOT, Clone, clone_of_the_working_tree, stage_sources

pytestmark = [pytest.mark.pipeline]

TEXTS = "data/features/texts"


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Clone:
    """A clone in which `dvc repro` has run once and its results are committed."""
    clone = clone_of_the_working_tree(tmp_path_factory.mktemp("pipeline") / "project")
    clone.audit.mkdir()
    watched = {"COATTAIL_AUDIT": str(clone.audit), "PYTHONPATH": str(ROOT / "tests" / "audit")}
    clone.env |= watched
    clone.dvc("repro")
    for name in watched:
        del clone.env[name]
    clone.commit("results")
    return clone


@pytest.fixture
def copy(done, tmp_path) -> Clone:
    """A copy of that clone to spoil; its MLflow store knows the old place, so it starts empty."""
    shutil.copytree(done.folder, tmp_path / "project", symlinks=True)
    (tmp_path / "project" / "mlflow.db").unlink()
    return Clone(tmp_path / "project")


def test_the_whole_pipeline_runs_and_every_stage_and_candidate_is_in_mlflow(done):
    (parent,) = done.runs("parent")
    assert parent.info.status == "FINISHED"
    names = {address.replace("@", "/") for address in stage_addresses(done.params())}
    assert {run.info.run_name for run in done.runs("stage")} == names
    assert set(stage_sources(parent)) == names
    assert set(stage_sources(parent).values()) == {"executed"}
    shown = {run.info.run_name: run for run in done.runs("candidate")}
    assert set(shown) == set(candidates(done.params()))
    for run in shown.values():
        assert {"p_at_1", "psp_at_5", "tail_recall_at_5"} <= set(run.data.metrics)
        assert run.data.tags["git.dirty"] == "false"
        assert run.inputs.dataset_inputs[0].dataset.name == "demo"
    deep = [run for run in done.runs("stage") if run.info.run_name.startswith("train_deep/")]
    assert all(run.data.tags["device_wanted"] == "auto" for run in deep)
    assert all(run.data.tags["device"] for run in deep)


HELD = ROOT / "tests" / "repository" / "store_of_old.json"
"""Names of all that the store held of two candidates when every stage still wrote to it itself."""


def test_the_store_holds_all_that_it_held_when_stages_wrote_to_it_themselves(done):
    for name, held in json.loads(HELD.read_text()).items():
        kind, _, run_name = name.partition(" ")
        runs = [run for run in done.runs(kind) if kind == "parent" or run.info.run_name == run_name]
        (run,) = runs
        assert run.info.status == "FINISHED", name
        assert set(held["params"]) <= set(run.data.params), name
        assert set(held["metrics"]) <= set(run.data.metrics), name
        assert set(held["tags"]) <= set(run.data.tags), name
        assert held["data"] == [one.dataset.name for one in run.inputs.dataset_inputs], name
        for key in run.data.metrics:
            points = len(done.client.get_metric_history(run.info.run_id, key))
            assert points == held["metrics"].get(key, points), (name, key)
        for path in held["files"]:
            folder, _, _ = path.rpartition("/")
            there = done.client.list_artifacts(run.info.run_id, folder or None)
            assert path in {one.path for one in there}, (name, path)


def test_a_second_repro_runs_nothing_and_makes_no_run(done):
    before = len(done.runs("stage"))
    output = done.dvc("repro")
    assert "Running stage" not in output
    assert "up to date" in output
    assert len(done.runs("stage")) == before
    assert len(done.runs("parent")) == 1


def test_stages_open_exactly_the_data_that_dvc_yaml_declares(done):
    definitions = done.resolved_stages()
    for address, stage in definitions.items():
        opened = set()
        for path in done.audit.glob(f"{address}+*"):
            opened |= set(path.read_text().splitlines())
        # Files are first written under a hidden temporary name beside the real one.
        opened = {path for path in opened if "/." not in path}
        declared = [*stage["deps"], *stage["outs"]]
        undeclared = {p for p in opened if not any(_inside(p, folder) for folder in declared)}
        assert not undeclared, f"{address} opens {sorted(undeclared)[:3]} without declaring it"
        data = [p for p in stage["deps"] if p.startswith(("data/", "metrics", "plots"))]
        # Variants share a stage's list: only models over an encoder (Model.reads) and rerankers
        # that look for the names of labels read texts.
        if address.split("@")[0] in ("train_deep", "rerank"):
            data.remove(TEXTS)
        if address == "candidates":  # it looks which folders are there and opens nothing in them
            data = [path for path in data if path == "data/runs"]
        unread = [p for p in data if not any(_inside(path, p) for path in opened)]
        assert not unread, f"{address} declares {unread} but never reads it"


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def test_git_sees_only_what_belongs_to_it(done):
    assert done.run("git", "status", "--porcelain") == ""
    assert done.run("git", "ls-files", "data", "plots") == "data/README.md\n"


def test_what_people_read_makes_sense(done):
    metrics = done.dvc("metrics", "show")
    for name in candidates(done.params()):
        assert f"metrics/{name}.json" in metrics
    assert "p_at_1" in metrics
    assert "train_deep@attentionxml" in done.dvc("dag")
    assert "psp_at_5" in done.dvc("exp", "show", "--csv")
    assert "index.html" in done.dvc("plots", "show", "-o", "/".join(["data", ".plots"]))
    shutil.rmtree(done.folder / "data" / ".plots")
    board = done.run("coattail", "leaderboard")
    assert all(name in board for name in candidates(done.params()))


def test_the_best_model_is_registered_and_tags_texts(done):
    champion = done.client.get_model_version_by_alias("coattail-demo", "champion")
    best = next(run for run in done.runs("candidate") if run.data.tags["is_best"] == "true")
    assert champion.run_id == best.info.run_id
    summary = json.loads((done.folder / "data" / "evaluation" / "summary.json").read_text())
    assert best.info.run_name == summary["champion"]["name"]
    assert champion.description.startswith(f"Champion: {best.info.run_name}, ")
    assert champion.tags["chosen_by"] == "PSP@5 on validation"
    code = (
        "import mlflow, pandas; mlflow.set_tracking_uri('sqlite:///mlflow.db')\n"
        "model = mlflow.pyfunc.load_model('models:/coattail-demo@champion')\n"
        "out = model.predict(pandas.DataFrame({'text': ['one', 'two']}), params={'k': 3})\n"
        "assert [len(row) for row in out] == [3, 3], out\n"
        "print(out[0][0]['label'])"
    )
    assert done.run(sys.executable, "-c", code)
    assert len(done.run("coattail", "tag", "-k", "2", "some words").splitlines()) == 3


def test_every_candidate_tags_new_texts_as_the_pipeline_ranked_them(done, monkeypatch):
    monkeypatch.chdir(done.folder)
    with gzip.open("data/features/texts/test.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    for name, candidate in candidates(done.params()).items():
        top = Tagger.of_workspace(name).rank(texts, 5)
        ranked = TopK.load(f"data/ranked/{name}/test.npz").head(5)
        # Another process may give torch another number of threads, and a sum other last bits.
        np.testing.assert_allclose(top.scores, ranked.scores, atol=1e-4, err_msg=name)
        if candidate.family == "linear":
            np.testing.assert_array_equal(top.labels, ranked.labels, name)


def test_a_forced_stage_gives_one_new_parent_with_the_rest_cached(copy):
    copy.dvc("repro", "-f", "-s", "evaluate")
    copy.dvc("repro")
    (parent,) = copy.runs("parent")
    sources = stage_sources(parent)
    assert {name for name, source in sources.items() if source == "executed"} == {"evaluate"}
    assert parent.data.metrics["preprocess/texts"] == 460
    assert parent.info.status == "FINISHED"


def test_an_experiment_reruns_only_what_its_param_touches(copy):
    copy.dvc("exp", "run", "-n", "stiffer", "-S", "train_linear.dismec.C=0.5")
    (parent,) = copy.runs("parent")
    assert parent.info.run_name == "stiffer"
    executed = {n for n, source in stage_sources(parent).items() if source == "executed"}
    assert "train_linear/dismec" in executed
    assert not {"preprocess", "train_deep/attentionxml", "build_plt/flat"} & executed
    assert "stiffer" in copy.dvc("exp", "show", "--csv")


def test_a_refit_ranks_validation_without_it_and_test_with_it(copy, monkeypatch):
    valid = (copy.folder / "data/ranked/dismec/valid.npz").read_bytes()
    copy.edit({"train_linear.dismec": {"refit": True}})
    copy.dvc("repro", "-s", "train_linear@dismec")
    assert (copy.folder / "data/ranked/dismec/valid.npz").read_bytes() == valid
    monkeypatch.chdir(copy.folder)
    features = Features("data/features")
    X, Y = (sp.vstack([part("train"), part("valid")]) for part in (features.X, features.Y))
    given = {k: v for k, v in copy.params()["train_linear"]["dismec"].items() if k != "refit"}
    wanted = Ovr(OvrParams(**given)).fit(X.tocsr(), Y.tocsr()).predict(features.X("test"), 100)
    found = TopK.load("data/ranked/dismec/test.npz")
    np.testing.assert_array_equal(found.labels, wanted.labels)
    top = Tagger.of_workspace("dismec").rank(features.texts("test"), 100)
    np.testing.assert_array_equal(top.labels, wanted.labels)


def test_the_same_seed_gives_the_same_bytes_and_leaves_git_clean(copy):
    before = copy.results()
    lock = (copy.folder / "dvc.lock").read_bytes()
    for name in ("data/features", "data/models", "data/runs", "plots", ".dvc/cache", ".dvc/tmp"):
        shutil.rmtree(copy.folder / name)
    (copy.folder / "dvc.lock").unlink()
    copy.dvc("repro")
    assert copy.results() == before
    # Nothing that DVC hashes knows when, where or under which id this ran.
    assert (copy.folder / "dvc.lock").read_bytes() == lock
    assert copy.run("git", "status", "--porcelain") == ""


def test_the_committed_lock_is_reproduced_to_the_byte(tmp_path):
    """The linear half, whose bytes are those of any processor; the whole of it: make repro."""
    clone = clone_of_the_working_tree(tmp_path / "project", small=False)
    shutil.copy(ROOT / "dvc.lock", clone.folder / "dvc.lock")
    committed = YAML(typ="safe").load((ROOT / "dvc.lock").read_text())["stages"]
    wanted = ["train_linear", "rerank@dismec-rerank"]
    clone.dvc("repro", *wanted)
    made = YAML(typ="safe").load((clone.folder / "dvc.lock").read_text())["stages"]
    ran = {path.stem for path in (clone.folder / "data" / "runs").iterdir()} | {"code"}
    assert {"download", "preprocess", "train_linear@bonsai", "rerank@dismec-rerank"} <= ran
    for address in sorted(ran):
        assert made[address] == committed[address], f"{address}: run make repro and commit dvc.lock"


def test_a_stage_says_the_md5_that_dvc_keeps(done):
    lock = YAML(typ="safe").load((done.folder / "dvc.lock").read_text())["stages"]
    known = results(stage_addresses(done.params()), done.folder / "data")
    for address, one in known.items():
        kept = {out["path"]: out["md5"] for out in lock[address]["outs"]}
        own = str(place(address))
        assert one.md5 == kept.pop(own)
        assert one.outs == kept


def test_a_comment_reruns_only_code_and_a_change_what_reaches_it(copy):
    path = copy.folder / "src" / "coattail" / "models" / "ranking" / "trade_off.py"
    source = path.read_text()
    path.write_text(source + "\n# a comment\n")
    output = copy.dvc("repro")
    assert "Running stage 'code'" in output
    assert output.count("Running stage") == 1
    path.write_text(source + "\nSOMETHING = 1\n")
    # A stage started past `code` would file its results under the code of before.
    refused = copy.dvc("repro", "-f", "-s", "rerank@dismec-rerank", code=255)
    assert "trade_off.py" in refused
    assert "dvc repro code" in refused
    copy.dvc("repro", "-q", "code")
    status = copy.dvc("status")
    assert "rerank@dismec-rerank" in status
    assert "train_linear" not in status
    copy.dvc("repro", "rerank@dismec-rerank")
    path.write_text(source)
    assert "> python -m stages.rerank" not in copy.dvc("repro")


def test_leftovers_of_somebody_else_cost_nothing_and_change_nothing(copy):
    lock = (copy.folder / "dvc.lock").read_bytes()
    for name in ("models", "ranked", "plt"):
        (copy.folder / "data" / name / "former").mkdir()
        (copy.folder / "data" / name / "former" / "x").touch()
    shutil.copy(
        copy.folder / "data/runs/train_linear@dismec.json",
        copy.folder / "data/runs/train_linear@former.json",
    )
    output = copy.dvc("repro")
    assert output.count("Running stage") == 1
    assert "Running stage 'candidates'" in output
    assert not (copy.folder / "data" / "models" / "former").exists()
    # A variant that failed half-way and was taken out again has left a ranking and no result.
    (copy.folder / "data" / "ranked" / "failed").mkdir()
    (copy.folder / "data" / "ranked" / "failed" / "valid.npz").touch()
    assert copy.dvc("repro").count("Running stage") == 1
    assert not (copy.folder / "data" / "ranked" / "failed").exists()
    assert (copy.folder / "dvc.lock").read_bytes() == lock


def test_a_stage_restored_from_the_run_cache_shows_as_cached(copy):
    copy.edit({"train_linear.dismec": {"C": 0.25}})
    copy.dvc("repro")
    copy.edit({"train_linear.dismec": {"C": 1.0}})
    output = copy.dvc("repro")
    assert "is cached - skipping run" in output
    assert "> python -m stages.train_linear" not in output


def test_a_failing_stage_leaves_the_reason_and_a_later_repro_goes_on(copy):
    copy.edit({"train_deep.attentionxml": {"lr": 0.003}, "": {"device": "cuda"}})
    output = copy.dvc("repro", code=255)
    assert "CUDA" in output
    assert "Traceback" not in output
    failed = [run for run in copy.runs("stage") if run.info.status == "FAILED"]
    assert [run.info.run_name for run in failed] == ["train_deep/attentionxml"]
    assert "CUDA" in failed[0].data.tags["failure"]
    copy.edit({"": {"device": "auto"}})
    copy.dvc("repro")
    (parent,) = copy.runs("parent")
    assert parent.info.status == "FINISHED"
    assert stage_sources(parent)["train_deep/attentionxml"] == "executed"
    assert "Running stage" not in copy.dvc("repro")


def test_a_misspelt_parameter_stops_the_stage_with_a_clear_sentence(copy):
    copy.edit({"train_linear.dismec": {"prunning": 0.1}})
    output = copy.dvc("repro", code=255)
    assert "train_linear.dismec.prunning: unknown parameter; did you mean 'prune'?" in output
    assert "Traceback" not in output


def test_four_queued_experiments_with_two_workers_are_all_there(copy):
    values = ["0.3", "0.6", "1.5", "3.0"]
    names = [f"c{value[0]}-{value[2]}" for value in values]
    for name, value in zip(names, values, strict=True):
        copy.dvc("exp", "run", "--queue", "-n", name, "-S", f"train_linear.dismec.C={value}")
    copy.dvc("queue", "start", "-j", "2")
    deadline = time.monotonic() + 900
    while True:
        status = copy.dvc("queue", "status")
        if "Queued" not in status and "Running" not in status:
            break
        assert time.monotonic() < deadline, status
        time.sleep(3)
    assert status.count("Success") == 4, status
    parents = copy.runs("parent")
    assert {run.info.run_name for run in parents} == set(names)
    assert {run.info.status for run in parents} == {"FINISHED"}
    for name in names:
        assert "database is locked" not in copy.dvc("queue", "logs", name)


def test_a_pull_into_a_fresh_clone_runs_nothing_and_can_be_shown(done, tmp_path):
    remote = tmp_path / "remote"
    done.dvc("remote", "add", "--local", "-f", "-d", "shared", str(remote))
    done.dvc("push", "--run-cache")
    done.run("git", "clone", "-q", str(done.folder), str(tmp_path / "project"))
    fresh = Clone(tmp_path / "project")
    fresh.dvc("remote", "add", "--local", "-d", "shared", str(remote))
    fresh.dvc("pull", "--run-cache")
    assert "Running stage" not in fresh.dvc("repro")
    assert fresh.results() == done.results()
    fresh.run("coattail", "sync")
    assert {run.info.run_name for run in fresh.runs("candidate")} == set(candidates(fresh.params()))
    assert len(fresh.runs("parent")) == 1
    assert "already" in fresh.run("coattail", "sync")
    assert len(fresh.runs("parent")) == 1


def test_results_of_a_variant_that_is_gone_do_not_linger(copy):
    yaml = YAML()
    path = copy.folder / "params.yaml"
    content = yaml.load(path.read_text())
    gone = next(iter(content["rerank"]))
    content["rerank"] = {}
    with open(path, "w") as file:
        yaml.dump(content, file)
    copy.dvc("repro")
    assert not (copy.folder / "data" / "ranked" / gone).exists()
    assert not (copy.folder / "metrics" / f"{gone}.json").exists()
    assert "Running stage" not in copy.dvc("repro")


def test_a_queue_takes_ranges_and_lists(copy):
    copy.dvc(
        *("exp", "run", "--queue", "-S", "train_linear.dismec.C=range(0.5,2,0.5)"),
        *("-S", "+train_linear.dismec.weighting=none,pw"),
    )
    assert copy.dvc("queue", "status").count("Queued") == 6
    copy.dvc("queue", "remove", "--all")


def test_tuning_leaves_the_best_on_validation_as_an_ordinary_experiment(copy):
    before = copy.results()
    words = ("tune", "dismec", "--over", "C=0.01,3", "--over", "weighting=none", "--trials", "2")
    output = copy.run("coattail", *words)
    assert "made experiment tune-dismec-best" in output
    assert copy.results() == before, "the workspace stays as it was"
    assert copy.run("git", "status", "--porcelain") == ""
    scores = {
        float(run.data.params["C"]): run.data.metrics["valid_psp_at_5"]
        for run in copy.runs("trial")
    }
    best = max(scores, key=scores.get)
    found = json.loads(copy.run("coattail", "compare", "HEAD", "tune-dismec-best", "--json"))
    assert {row["source"] for row in found} == {"HEAD", "tune-dismec-best"}
    (run,) = [
        run
        for run in copy.runs("candidate")
        if (run.info.run_name, run.data.tags["pipeline"]) == ("dismec", "tune-dismec-best")
    ]
    assert float(run.data.params["train_linear.C"]) == best
    assert "there is already experiment" in copy.run("coattail", *words)
    copy.dvc("exp", "apply", "tune-dismec-best")
    assert copy.params()["train_linear"]["dismec"]["C"] == best
