"""When two results differ in nothing but the processor that computed them."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from coattail.experiments.compare import Comparison, Source
from coattail.pipeline.stage_result import StageResult
from coattail.tracking import circumstances, journal
from coattail.tracking.circumstances import NOTHING, Circumstances
from coattail.tracking.origin import computed, stage_origin
from coattail.tracking.record import RunRecord, environment_tags

HERE = {"machine.processor": "One", "machine.capability": "avx2", "run.processor": "native"}
THERE = HERE | {"machine.processor": "Two", "run.threads": "4", "run.settings": "MKL_CBWR=AVX2"}
STAGE = {
    "cmd": "python -m stages.train_linear a",
    "deps": [
        {"path": "data/code/train_linear.txt", "md5": "c0"},
        {"path": "data/features/tfidf", "md5": "f0"},
    ],
    "params": {"params.yaml": {"processor": "native", "train_linear.a": {"C": 1}}},
    "outs": [{"path": "data/models/a", "md5": "m0"}],
}


def lock(tmp_path: Path, stage: dict) -> str:
    path = tmp_path / "lock.yaml"
    YAML().dump({"stages": {"train_linear@a": stage}}, path)
    return path.read_text()


def kept(tags: dict[str, str]) -> str:
    """A run in the journal with these tags; the md5 of what it computed."""
    record = RunRecord("train_linear", "a", {}, 1, ended=2, tags=tags)
    record.metrics = {"made_on": float(len(str(tags)))}
    journal.keep(record)
    return record.result().md5


def with_result(md5: str, **changes: object) -> dict:
    stage = copy.deepcopy(STAGE) | changes
    stage["outs"].append({"path": "data/runs/train_linear@a.json", "md5": md5})
    return stage


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)


def test_other_outputs_and_data_in_between_are_no_other_recipe(tmp_path):
    one = circumstances.of_lock(lock(tmp_path, with_result(kept(HERE))))
    deps = [STAGE["deps"][0], {"path": "data/features/tfidf", "md5": "f1"}]
    params = {"params.yaml": {"processor": "any", "train_linear.a": {"C": 1}}}
    stage = with_result(kept(THERE), deps=deps, params=params)
    other = circumstances.of_lock(lock(tmp_path, stage))
    assert one.computed == {computed(HERE)}
    assert one.beside(other) == f"{computed(HERE)} against {computed(THERE)}"


@pytest.mark.parametrize(
    "changes",
    [
        {"deps": [{"path": "data/code/train_linear.txt", "md5": "c1"}, STAGE["deps"][1]]},
        {"params": {"params.yaml": {"train_linear.a": {"C": 2}}}},
    ],
)
def test_other_code_or_params_are_another_recipe(changes, tmp_path):
    one = circumstances.of_lock(lock(tmp_path, with_result(kept(HERE))))
    other = circumstances.of_lock(lock(tmp_path, with_result(kept(THERE), **changes)))
    assert not one.beside(other)


def test_nothing_is_said_of_runs_that_nobody_knows(tmp_path):
    known = circumstances.of_lock(lock(tmp_path, with_result(kept(HERE))))
    unknown = circumstances.of_lock(lock(tmp_path, with_result("never-kept")))
    assert known.recipe == unknown.recipe
    assert not known.beside(unknown)
    assert not NOTHING.beside(NOTHING)
    assert circumstances.of_lock("").computed == frozenset()


def test_compare_warns_and_says_whether_figures_differ():
    one = Source("a", "run", "", {"x": {"p_at_1": 50.0}}, Circumstances("r", frozenset({"One"})))
    two = Source("b", "run", "", {"x": {"p_at_1": 50.5}}, Circumstances("r", frozenset({"Two"})))
    (warning,) = Comparison([one, two]).warnings()
    assert warning == (
        "a and b differ in the processor alone: One against Two; "
        "so differences of figures come from there"
    )
    same = Source("b", "run", "", one.candidates, two.made)
    assert Comparison([one, same]).warnings()[0].endswith("no figure differs")
    assert Comparison([one, Source("c", "run", "", {}, one.made)]).warnings() == []


def test_records_say_what_they_were_computed_with_and_lineage_repeats_it(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    tags = environment_tags()
    assert tags["machine.processor"]
    assert tags["run.threads"] == "3"
    assert "MKL_CBWR=AVX2" in tags["run.settings"]
    record = RunRecord("train_linear", "a", {}, 1, tags=tags, outs={"x": "y"})
    told = json.loads(stage_origin(record, "executed", "id"))["computed"]
    assert tags["machine.processor"] in told
    assert "threads: 3" in told


def test_a_result_holds_nothing_of_the_processor():
    one, other = (RunRecord("s", None, {}, 1, tags=tags).result() for tags in (HERE, THERE))
    assert isinstance(one, StageResult)
    assert one.md5 == other.md5
