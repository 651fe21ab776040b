"""Results of stages, and the md5 of outputs as DVC has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from dvc.repo import Repo

from coattail.errors import DataError
from coattail.pipeline import outputs
from coattail.pipeline.stage_result import Logged, StageResult, is_timing, place, results


def result(**more) -> StageResult:
    return StageResult("train_linear", "dismec", {"C": 1.0}, {"weights": 3.0}, **more)


def test_a_result_is_read_back_as_it_was(tmp_path):
    one = result(history=[Logged("loss", 0.1 + 0.2, 3)], facts={"a": "b"}, outs={"x": "0.dir"})
    one.save(tmp_path)
    path = tmp_path / "runs" / "train_linear@dismec.json"
    assert StageResult.load(path) == one
    assert StageResult.load(path).md5 == one.md5 == outputs.md5(path)


def test_results_that_differ_have_other_names():
    assert result().md5 != result(outs={"data/models/dismec": "1.dir"}).md5


def test_evaluate_leaves_its_result_outside_of_the_folder_that_candidates_reads(tmp_path):
    StageResult("evaluate", None, {}).save(tmp_path)
    assert place("evaluate", tmp_path) == tmp_path / "evaluate.json"
    assert results(["evaluate"], tmp_path)["evaluate"].stage == "evaluate"


@pytest.mark.parametrize("content", ["{", "{}", '{"stage": 1, "history": [{"x": 1}]}', "[]"])
def test_a_broken_result_says_which_file_and_what_to_do(content, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"x\.json is not the result.*dvc repro -f"):
        StageResult.load(path)


def test_a_missing_result_says_what_makes_it(tmp_path):
    with pytest.raises(DataError, match="dvc repro makes it"):
        StageResult.load(tmp_path / "x.json")


def test_timings_are_told_by_their_names():
    assert is_timing("seconds")
    assert is_timing("texts_per_second")
    assert not is_timing("loss")


def test_md5_of_files_and_folders_is_that_of_dvc(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "made"
    for name in ("b.txt", "a/é.txt", "a-b/c", "a.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (tmp_path / "alone.bin").write_bytes(bytes(range(256)) * 5000)
    repo = Repo.init(no_scm=True)
    for path in ("made", "alone.bin"):
        (stage,) = repo.add(path)
        assert outputs.md5(Path(path)) == stage.outs[0].hash_info.value


def test_outputs_of_a_variant_are_those_that_dvc_yaml_declares(tmp_path):
    file = tmp_path / "dvc.yaml"
    file.write_text(
        "stages:\n"
        "  train:\n    foreach: ${train}\n    do:\n"
        "      outs:\n      - data/models/${key}\n      - plots/x.csv: {cache: false}\n"
        "  last:\n    outs: [data/y]\n    metrics: [{metrics: {cache: false}}]\n"
    )
    assert outputs.declared("train", "a", file) == ["data/models/a", "plots/x.csv"]
    assert outputs.declared("last", None, file) == ["data/y", "metrics"]
    assert outputs.declared("none", None, file) == []
    assert outputs.declared("last", None, tmp_path / "no.yaml") == []
