"""The whole of params.yaml: sections, references between them, candidates' names."""

import copy
from pathlib import Path

import pytest

from coattail.config import read_yaml
from coattail.errors import ConfigError
from coattail.pipeline.candidates import candidates, stage_addresses
from coattail.pipeline.leftovers import leftovers, remove_leftovers
from coattail.pipeline.schema import check

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def params():
    return copy.deepcopy(read_yaml(ROOT / "params.yaml"))


def test_the_shipped_params_are_fine(params):
    check(params)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.update(trian_linear={}), "unknown section 'trian_linear'; did you mean"),
        (lambda p: p.pop("evaluate"), "section 'evaluate' is missing"),
        (lambda p: p.update(threads="two"), "threads: got 'two'"),
        (lambda p: p["train_linear"]["dismec"].update(tree="flt"), "needs build_plt.flt"),
        (lambda p: p["train_linear"]["dismec"].update(train="augmented/x"), "augment_tails.x"),
        (lambda p: p["rerank"]["dismec-rerank"].update(base="dismek"), "did you mean 'dismec'"),
        (lambda p: p["rerank"].update(dismec={"base": "bonsai"}), "has the name of"),
        (lambda p: p["evaluate"].update(base="nobody"), "evaluate.base: no candidate 'nobody'"),
        (
            lambda p: p["evaluate"]["best"].update(by="pps_at_5"),
            "best.by: no metric 'pps_at_5'; did",
        ),
        (
            lambda p: p["evaluate"]["best"].update(at_least={"p_at_9": 1}),
            "at_least.p_at_9: no metric",
        ),
        (lambda p: p["evaluate"]["best"].update(at_least={"p_at_1": "bas"}), "got 'bas'"),
        (
            lambda p: p["publish"].update(best_by="ndcg_at_5"),
            "Remove it and write, under evaluate, best: {by: ndcg_at_5, ",
        ),
        (lambda p: p.update(train_linear=[1]), "wanted named variants"),
        (lambda p: p["train_linear"].update({"a b": {"model": "ovr"}}), "letters, digits"),
        (lambda p: p["train_linear"]["dismec"].pop("tree"), "tree has to be written out"),
    ],
)
def test_every_mistake_is_named(params, change, message):
    change(params)
    with pytest.raises(ConfigError) as error:
        check(params)
    assert message in str(error.value)


def test_params_without_a_rule_have_the_usual_one(params):
    del params["evaluate"]["best"]
    check(params)


def test_candidates_that_build_on_each_other_are_refused(params):
    params["rerank"] = {"a": {"base": "b"}, "b": {"base": "a"}}
    with pytest.raises(ConfigError, match="circle: a -> b -> a"):
        candidates(params)


def test_a_candidate_knows_what_made_it(params):
    found = candidates(params)["ensemble-rerank"]
    assert found.family == "ensemble"
    assert found.sources == ("dismec-attentionxml",)
    assert found.tail_methods == ("rerank",)
    assert found.made_by[-1] == "rerank@ensemble-rerank"
    assert {"train_linear@dismec", "train_deep@attentionxml", "build_plt@flat"} < set(found.made_by)
    assert candidates(params)["dismec-taug"].tail_methods == ("taug",)
    assert candidates(params)["dismec-rerank"].family == "linear"


def test_leftovers_are_what_params_no_longer_name(params, tmp_path):
    data, curves = tmp_path / "data", tmp_path / "plots" / "training"
    kept = [data / "ranked/dismec/x", data / "runs/download.json", curves / "attentionxml.csv"]
    kept.append(curves / "httn.csv")
    gone = [data / "ranked/old/x", data / "runs/rerank@old.json", curves / "old.csv"]
    for path in kept + gone:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    old = [data / "runs/rerank@old.json", data / "ranked/old", curves / "old.csv"]
    assert leftovers(params, data) == old
    assert old[0].exists()
    assert remove_leftovers(params, data) == old
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in kept)


def test_stage_addresses_are_those_of_dvc(params):
    addresses = stage_addresses(params)
    assert addresses[:2] == ["download", "preprocess"]
    assert "train_linear@dismec" in addresses
    assert addresses[-1] == "evaluate"
