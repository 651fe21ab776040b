"""Data of one's own in real DVC: a corrected label counts, in experiments and the queue too."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.project import ROOT, Clone, tiny_project

pytestmark = [pytest.mark.pipeline]


def rows(count: int, shift: int = 0) -> list[dict]:
    """Texts whose words tell their label."""
    return [
        {"text": f"about{i % 7} word{i % 7} and{i % 3}", "labels": [f"L{(i + shift) % 7}"]}
        for i in range(count)
    ]


def write(path: Path, content: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in content))


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory) -> Clone:
    """A project on the folder ../corpus, evaluated and committed."""
    clone = tiny_project(tmp_path_factory.mktemp("own") / "project")
    write(clone.folder.parent / "corpus" / "train.jsonl", rows(140))
    write(clone.folder.parent / "corpus" / "test.jsonl", rows(28))
    clone.run("coattail", "use", "jsonl", "--data", "../corpus")
    clone.audit.mkdir()
    watched = {"COATTAIL_AUDIT": str(clone.audit), "PYTHONPATH": str(ROOT / "tests" / "audit")}
    clone.env |= watched
    clone.dvc("repro", "evaluate")
    for name in watched:
        del clone.env[name]
    clone.commit("results")
    return clone


@pytest.fixture
def own(evaluated, tmp_path) -> Clone:
    """A copy of it, with its folder, to spoil."""
    shutil.copytree(evaluated.folder.parent, tmp_path / "own", symlinks=True)
    (tmp_path / "own" / "project" / "mlflow.db").unlink()
    return Clone(tmp_path / "own" / "project")


def folder(clone: Clone) -> Path:
    return clone.folder.parent / "corpus"


def ran(output: str) -> list[str]:
    return [line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage")]


def p_at_1(clone: Clone) -> float:
    return json.loads((clone.folder / "metrics" / "dismec.json").read_text())["p_at_1"]


def labels(clone: Clone) -> str:
    return (clone.folder / "data" / "raw" / "test.jsonl").read_text()


def test_corrected_labels_rerun_what_depends_on_them_and_move_the_figures(own):
    assert p_at_1(own) == 100.0
    assert ran(own.dvc("repro", "evaluate")) == ["take_in@corpus"]
    assert own.run("coattail", "status").startswith("report:")
    changed = rows(28)
    changed[3]["labels"] = ["L6"]
    write(folder(own) / "test.jsonl", changed)
    assert "test.jsonl has changed; make repro takes it in" in own.run("coattail", "status")
    output = own.dvc("repro", "evaluate")
    assert "corpus: test.jsonl has changed; took in again ../corpus" in output
    assert {"take_in@corpus", "download", "preprocess", "evaluate"} <= set(ran(output))
    assert "build_plt@flat" not in ran(output), "train is as it was"
    assert p_at_1(own) == pytest.approx(100 * 27 / 28, abs=0.01)


def test_the_copy_is_what_dvc_yaml_declares_and_what_download_opens(evaluated):
    stages = evaluated.resolved_stages()
    assert stages["take_in@corpus"]["outs"] == ["data/own/corpus"]
    assert "data/own/corpus" in stages["download"]["deps"]
    for address in ("take_in@corpus", "download"):
        opened = set()
        for path in evaluated.audit.glob(f"{address}+*"):
            opened |= {line for line in path.read_text().splitlines() if "/." not in line}
        declared = stages[address]["deps"] + stages[address]["outs"]
        assert "data/own/corpus/train.jsonl" in opened
        strange = {one for one in opened if not any(one.startswith(path) for path in declared)}
        assert not strange, f"{address} opens {strange}"


def test_a_row_more_another_file_name_and_another_folder_are_noticed(own):
    write(folder(own) / "train.jsonl", rows(141))
    assert "download" in ran(own.dvc("repro", "preprocess"))
    assert len((own.folder / "data/raw/train.jsonl").read_text().splitlines()) == 141
    (folder(own) / "train.jsonl").rename(folder(own) / "trn.jsonl")
    status = own.run("coattail", "status")
    assert "train.jsonl is gone, trn.jsonl is new" in status
    assert "download" in ran(own.dvc("repro", "preprocess"))
    assert not (own.folder / "data/own/corpus/train.jsonl").exists()
    shutil.rmtree(folder(own))
    write(folder(own) / "train.jsonl", rows(70))
    write(folder(own) / "test.jsonl", rows(14))
    assert "download" in ran(own.dvc("repro", "preprocess"))
    assert len(labels(own).splitlines()) == 14
    assert own.run("git", "status", "--porcelain") == " M dvc.lock\n"


def test_an_experiment_takes_a_correction_in_and_one_from_the_queue_stops(own):
    write(folder(own) / "test.jsonl", rows(28, shift=1))
    output = own.dvc("exp", "run", "-n", "corrected", "preprocess")
    assert "took in again ../corpus" in output
    assert '"L1"' in labels(own).splitlines()[0]
    # What waits in the queue ran on other bytes than when it was put there: it says so and stops.
    write(folder(own) / "test.jsonl", rows(28, shift=2))
    own.dvc("exp", "run", "--queue", "-n", "late", "-S", "preprocess.min_df=1", "preprocess")
    assert "Failed" in queued(own)
    logs = own.dvc("queue", "logs", "late")
    assert "../corpus is not what data/own/corpus holds (test.jsonl has changed)" in logs
    refused = own.run("coattail", "experiment", "queue", "-S", "preprocess.min_df=1", code=1)
    assert "error: " in refused
    own.dvc("repro", "preprocess")
    own.dvc("exp", "run", "--queue", "-n", "again", "-S", "preprocess.min_df=1", "preprocess")
    assert "Success" in queued(own).split("again")[1].splitlines()[0]


def queued(clone: Clone) -> str:
    clone.dvc("queue", "start")
    deadline = time.monotonic() + 300
    while True:
        status = clone.dvc("queue", "status")
        if "Queued" not in status and "Running" not in status:
            return status
        assert time.monotonic() < deadline, status
        time.sleep(1)


def test_coattail_queue_refuses_what_was_not_taken_in(own):
    write(folder(own) / "test.jsonl", rows(29))
    refused = own.run(
        "coattail", "experiment", "queue", "-S", "preprocess.min_df=1", "--on", "here", code=1
    )
    assert "../corpus has changed since it was taken in: test.jsonl has changed" in refused


def test_a_colleague_without_the_folder_pulls_the_copy_and_can_run_everything(own, tmp_path):
    remote = str(tmp_path / "remote")
    own.dvc("remote", "add", "--local", "-d", "shared", remote)
    own.dvc("push")
    own.run("git", "clone", "-q", str(own.folder), str(tmp_path / "elsewhere" / "project"))
    fresh = Clone(tmp_path / "elsewhere" / "project")
    fresh.dvc("remote", "add", "--local", "-d", "shared", remote)
    missing = fresh.dvc("repro", "download", code=255)
    assert "fetch it: dvc pull data/own/corpus" in missing
    fresh.dvc("pull", "evaluate", "--with-deps")
    assert ran(fresh.dvc("repro", "evaluate")) == ["take_in@corpus"]
    assert fresh.run("git", "status", "--porcelain") == ""
    fresh.dvc("repro", "-f", "-s", "download")
    assert fresh.run("git", "status", "--porcelain") == ""


def test_back_to_the_demo_nothing_of_the_folder_is_left_in_git(own):
    before = own.run("git", "show", "HEAD~1:params.yaml")
    own.run("coattail", "use", "demo")
    own.edit({"dataset.demo": {"train": 300, "valid": 60, "test": 100, "labels": 60, "words": 400}})
    own.dvc("repro", "preprocess")
    assert own.params() == _parsed(before)
    for name in ("params.yaml", "dvc.lock", "dvc.yaml"):
        content = (own.folder / name).read_text()
        assert "corpus" not in content.replace("Generated corpus", "").replace("demo-corpus", "")


def _parsed(text: str) -> dict:
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(text)
