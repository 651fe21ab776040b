"""A study is run by the real pipeline, killed in the middle, and goes on to the same figures."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.project import SMALL, Clone, clone_of_the_working_tree

STUDY = {
    "title": "Weights on a small corpus",
    "paper": "PW",
    "tables": ["3"],
    "paper_dataset": "EURLex-4K",
    "dataset": "demo",
    "regime": "Generated.",
    "use": ["preset/linear-paper"],
    "params": {"dataset": {"demo": SMALL["dataset.demo"]}},
    "columns": ["p_at_1", "psp_at_1", "scored_change"],
    "resamples": 100,
    "rows": {
        "none": {"title": "None", "candidate": "dismec"},
        "pw": {
            "title": "PW",
            "candidate": "dismec-pw",
            "against": "none",
            "differs": ["train_linear.weighting"],
        },
        "broken": {
            "title": "Broken",
            "candidate": "bonsai",
            "params": {"train_linear": {"bonsai": {"train": "augmented/nothing"}}},
        },
    },
    "claims": [{"says": "PW helps.", "judged": "rises", "row": "pw", "metrics": ["psp_at_1"]}],
}


def project(folder: Path) -> Clone:
    clone = clone_of_the_working_tree(folder, small=False)
    for path in (folder / "studies").glob("*.[yj]*"):
        path.unlink()
    rows = {name: row for name, row in STUDY["rows"].items() if name != "broken"}
    write(clone, STUDY | {"rows": rows})
    clone.commit("one study")
    return clone


def write(clone: Clone, study: dict[str, Any]) -> None:
    with open(clone.folder / "studies" / "weights.yaml", "w") as file:
        YAML(typ="safe", pure=True).dump(study, file)


def found(clone: Clone) -> dict[str, Any]:
    content = json.loads((clone.folder / "studies" / "weights.json").read_text())
    return content["found"]


def killed_after_the_first_row(clone: Clone) -> None:
    rows = clone.folder / ".dvc/tmp/coattail/studies/weights/rows"
    run = subprocess.Popen(
        ["coattail", "study", "run", "weights"], cwd=clone.folder, env=clone.env,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    end = time.monotonic() + 600
    while not (rows / "none-seed-0.json").exists():
        assert run.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.wait()


@pytest.mark.pipeline
def test_a_killed_study_goes_on_and_finds_what_an_undisturbed_one_finds(tmp_path: Path) -> None:
    one, other = (project(tmp_path / name) for name in ("killed", "undisturbed"))
    killed_after_the_first_row(one)
    assert not (one.folder / "studies" / "weights.json").exists()
    kept = one.folder / ".dvc/tmp/coattail/studies/weights/rows/none-seed-0.json"
    before = kept.stat().st_mtime_ns
    for clone in (one, other):
        assert "PW helps." in clone.run("coattail", "study", "run", "weights")
    assert kept.stat().st_mtime_ns == before  # the row was not run again
    assert found(one) == found(other)
    assert set(found(one)["rows"]) == {"none", "pw"}

    again = (one.folder / "studies" / "weights.json").read_bytes()
    one.run("coattail", "study", "run", "weights")
    assert (one.folder / "studies" / "weights.json").read_bytes() == again
    parents = [run for run in one.runs("parent") if run.info.run_name == "study-weights"]
    below = {run.data.tags["mlflow.parentRunId"] for run in one.runs("stage")}
    assert below <= {run.info.run_id for run in parents}

    missing(one)


def missing(clone: Clone) -> None:
    """A row that fails leaves the others standing, is told, and is missing."""
    (clone.folder / "src" / "coattail" / "extra.py").write_text("")
    assert "a study runs what is committed" in clone.run(
        "coattail", "study", "run", "weights", code=1
    )
    (clone.folder / "src" / "coattail" / "extra.py").unlink()
    study = json.loads(json.dumps(STUDY))
    study["rows"]["broken"]["params"] = {"train_linear": {"bonsai": {"memory_mb": 16}}}
    study["rows"]["broken"]["candidate"] = "plt-logistic"
    study["rows"]["broken"]["params"] = {"preprocess": {"min_df": 1000}}
    write(clone, study)
    said = clone.run("coattail", "study", "run", "weights", code=1)
    assert "row broken, seed 0:" in said
    assert "row missing" in said
    assert set(found(clone)["rows"]) == {"none", "pw"}
