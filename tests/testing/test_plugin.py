"""The example of a plugin, installed beside us, takes part in everything without a line changed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project import ROOT, Clone, tiny_project

PLUGIN = ROOT / "examples" / "plugin"
CANDIDATE = {"model": "centroids", "train": "features/tfidf/train", "tree": "flat"}


@pytest.fixture(scope="module")
def layer(tmp_path_factory) -> Path:
    """A folder that pip has installed the plugin into; on PYTHONPATH it is one more environment."""
    folder = tmp_path_factory.mktemp("environment")
    source = folder / "source"
    shutil.copytree(PLUGIN, source)
    words = "pip install -q --no-deps --no-build-isolation --disable-pip-version-check --target"
    subprocess.run([sys.executable, "-m", *words.split(), folder / "site", source], check=True)
    return folder / "site"


def with_layer(layer: Path) -> dict[str, str]:
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(layer), *([before] if before else [])])}


def test_the_plugin_keeps_the_contract_that_we_offer_it(layer):
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    env = os.environ | with_layer(layer)
    done = subprocess.run([*words, "tests"], cwd=PLUGIN, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def done(layer, tmp_path_factory) -> Clone:
    """A project with a candidate of the plugin, and one that reranks it, run once."""
    clone = tiny_project(tmp_path_factory.mktemp("plugin") / "project")
    clone.env |= with_layer(layer)
    clone.edit(
        {
            "": {"plugins": {"centroids": {"package": "coattail-centroids"}}},
            "train_linear": {"mean": CANDIDATE},
            "rerank": {"mean-rerank": {"base": "mean", "strategy": "propensity"}},
            "publish": {"models": "all"},
        }
    )
    clone.dvc("repro")
    clone.commit("results")
    return clone


@pytest.mark.pipeline
class TestInAProject:
    def test_it_stands_in_the_leaderboard_the_report_and_mlflow(self, done):
        board = done.run("coattail", "leaderboard")
        assert "mean" in board
        assert "mean-rerank" in board
        page = (done.folder / "data/report/report.html").read_text(encoding="utf-8")
        said = re.findall(r'<th scope="row">mean<small>\d+ right</small></th>.*?</tr>', page)
        assert any("<small title=" in one for one in said), "words stand behind its labels"
        shown = {run.info.run_name: run for run in done.runs("candidate")}
        assert shown["mean"].data.tags["family"] == "linear"
        assert shown["mean"].data.metrics["p_at_1"] > 0

    def test_the_tagger_serves_it_and_a_bundle_says_what_it_needs(self, done, tmp_path):
        text = done.some_text()
        tagged = done.run("coattail", "tag", "--candidate", "mean-rerank", "-k", "2", text)
        assert len(tagged.splitlines()) == 3
        (done.folder / "new.txt").write_text(f"{text}\n")
        words = (
            "add-label",
            "mean",
            "a new one",
            "--texts",
            "new.txt",
            "--to",
            str(tmp_path / "b"),
        )
        done.run("coattail", *words)
        (done.folder / "new.txt").unlink()
        assert "a new one" in done.run("coattail", "tag", "--model", str(tmp_path / "b"), text)
        refused = without_plugin(done).run(
            "coattail", "tag", "--model", str(tmp_path / "b"), text, code=1
        )
        assert "'centroids' comes from the plugin coattail-centroids" in refused

    def test_its_mlflow_model_brings_its_code_along(self, done):
        (run,) = [run for run in done.runs("candidate") if run.info.run_name == "mean"]
        code = (
            "import mlflow, pandas, sys; mlflow.set_tracking_uri('sqlite:///mlflow.db')\n"
            f"model = mlflow.pyfunc.load_model('runs:/{run.info.run_id}/model')\n"
            "print(model.predict(pandas.DataFrame({'text': [sys.argv[1]]}), params={'k': 2}))"
        )
        assert "'label'" in without_plugin(done).run(sys.executable, "-c", code, done.some_text())

    def test_it_is_tuned(self, done):
        over = ("--over", "prior=0.0,0.5", "--trials", "2", "--maximise", "p_at_1")
        assert "prior" in done.run("coattail", "tune", "mean", *over, "--no-run")
        shutil.rmtree(done.folder / "data" / "tune")

    def test_a_colleague_without_it_sees_the_results_and_is_told_what_to_install(self, done):
        colleague = without_plugin(done)
        output = colleague.dvc("repro")
        assert ran(output) == ["plugins@centroids"]
        assert "'centroids' comes from the plugin coattail-centroids, which is not inst" in output
        refused = colleague.dvc("repro", "-f", "-s", "train_linear@mean", code=255)
        assert "pip install --no-deps coattail-centroids" in refused
        assert "Traceback" not in refused

    def test_an_unknown_model_is_refused_before_any_work(self, done):
        done.edit({"train_linear": {"odd": CANDIDATE | {"model": "centroid"}}})
        refused = done.dvc("repro", code=255)
        done.run("git", "checkout", "-q", "params.yaml")
        assert "train_linear.odd: train_linear has no model 'centroid'" in refused
        assert "of plugins centroids" in refused
        assert ran(refused) == ["code"]

    # The last one: it leaves the project as a change of the plugin leaves it.
    def test_a_change_of_its_code_retrains_its_candidates_and_no_others(self, done, layer):
        path = layer / "coattail_centroids" / "model.py"
        source = path.read_text()
        try:
            path.write_text(source + "\n# a comment\n")
            assert ran(done.dvc("repro")) == ["plugins@centroids"], "a look at the plugin"
            path.write_text(source + "\nSOMETHING = 1\n")
            refused = done.dvc("repro", "-f", "-s", "train_linear@mean", code=255)
            assert "dvc repro plugins@centroids" in refused
            assert ran(done.dvc("repro", "train_linear")) == [
                "plugins@centroids",
                "train_linear@mean",
            ]
        finally:
            path.write_text(source)


def without_plugin(clone: Clone) -> Clone:
    """The same project, seen by somebody who has not installed the plugin."""
    return Clone(clone.folder)


def ran(output: str) -> list[str]:
    return [line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage")]


def test_params_of_the_plugin_join_the_schema_and_are_checked_by_it(layer):
    code = (
        "import json, sys; from coattail.pipeline import registry\n"
        "print(registry.parsed('train_linear', json.loads(sys.argv[1]), 'here').prior)"
    )

    def parse(**values: float) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", code, json.dumps(CANDIDATE | values)]
        env = os.environ | with_layer(layer)
        return subprocess.run(words, env=env, capture_output=True, text=True)

    assert parse(prior=0.5).stdout == "0.5\n"
    assert "here.priro: unknown parameter; did you mean 'prior'?" in parse(priro=1).stderr
