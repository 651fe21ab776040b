"""The whole pipeline in a temporary clone, with real DVC commands and a real MLflow store."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from ruamel.yaml import YAML

from coattail.arrays import TopK
from coattail.pipeline.candidates import candidates, stage_addresses
from coattail.pipeline.stage_result import place, results
from coattail.serving.tagger import Tagger
from tests.project import ROOT, Clone, clone_of_the_working_tree, copy_of, stage_sources

pytestmark = [pytest.mark.pipeline]

TEXTS = "data/features/texts"


@dataclass
class Again:
    """The second run of everything: what was said and left when it failed on the way."""

    clone: Clone
    lock: bytes  # dvc.lock of the first run
    output: str
    failed: list  # runs in MLflow


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


@pytest.fixture(scope="module")
def again(done, tmp_path_factory) -> Again:
    """A copy that forgot all results and made them a second time, with a failure on the way."""
    clone = copy_of(done, tmp_path_factory.mktemp("again") / "project")
    lock = (clone.folder / "dvc.lock").read_bytes()
    for name in ("data/features", "data/models", "data/runs", "plots", ".dvc/cache", ".dvc/tmp"):
        shutil.rmtree(clone.folder / name)
    (clone.folder / "dvc.lock").unlink()
    clone.edit({"": {"device": "cuda"}})
    output = clone.dvc("repro", code=255)
    failed = [run for run in clone.runs("stage") if run.info.status == "FAILED"]
    clone.edit({"": {"device": "auto"}})
    clone.dvc("repro")
    return Again(clone, lock, output, failed)


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
        "import mlflow, pandas, sys; mlflow.set_tracking_uri('sqlite:///mlflow.db')\n"
        "model = mlflow.pyfunc.load_model('models:/coattail-demo@champion')\n"
        "texts = pandas.DataFrame({'text': [*sys.argv[1:], 'zyx']})\n"
        "out = model.predict(texts, params={'k': 3})\n"
        "assert [len(row) for row in out] == [3, 3, 0], out\n"
        "assert set(out[0][0]) == {'label', 'score', 'probability'}, out\n"
        "print(out[0][0]['label'])"
    )
    assert done.run(sys.executable, "-c", code, *done.some_text().split())
    assert len(done.run("coattail", "tag", "-k", "2", done.some_text()).splitlines()) == 3
    assert "knows no word of it" in done.run("coattail", "tag", "zyx", code=1)


def test_every_candidate_tags_new_texts_as_the_pipeline_ranked_them(done, monkeypatch):
    monkeypatch.chdir(done.folder)
    with gzip.open("data/features/texts/test.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    for name, candidate in candidates(done.params()).items():
        top = Tagger.of_workspace(name).rank(texts, 5)
        ranked = TopK.load(f"data/ranked/{name}/test.npz").head(5)
        # Another process may give torch another number of threads, and a sum other last bits.
        np.testing.assert_allclose(top.scores, ranked.scores, 1e-4, 1e-4, err_msg=name)
        if ranked.confidence is not None:
            np.testing.assert_allclose(top.confidence, ranked.confidence, 0, 1e-4, err_msg=name)
        if candidate.family == "linear":
            np.testing.assert_array_equal(top.labels, ranked.labels, name)


def test_the_same_seed_gives_the_same_bytes_and_leaves_git_clean(done, again):
    assert again.clone.results() == done.results()
    # Nothing that DVC hashes knows when, where or under which id this ran.
    assert (again.clone.folder / "dvc.lock").read_bytes() == again.lock
    assert again.clone.run("git", "status", "--porcelain") == ""


def test_a_failing_stage_leaves_the_reason_and_a_later_repro_goes_on(again):
    assert "CUDA" in again.output
    assert "Traceback" not in again.output
    (failed,) = again.failed
    assert failed.info.run_name.partition("/")[0] in ("train_deep", "transfer")
    assert "CUDA" in failed.data.tags["failure"]
    (parent,) = again.clone.runs("parent")
    assert parent.info.status == "FINISHED"
    assert stage_sources(parent)[failed.info.run_name] == "executed"
    ran = [run.info.run_name for run in again.clone.runs("stage")]
    assert ran.count("preprocess") == 1, "what was done before the failure is not done again"
    assert "Running stage" not in again.clone.dvc("repro")


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
