"""Studies as files: what is refused, where published figures are found, how rows differ."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from coattail.config import parse
from coattail.errors import ConfigError, DataError
from coattail.studies import published, resolve, running, study_params
from coattail.studies.resolve import Sources
from coattail.studies.study_params import StudyParams

STUDY: dict[str, Any] = {
    "title": "Weights",
    "paper": "PW",
    "tables": ["3"],
    "paper_dataset": "EURLex-4K",
    "dataset": "demo",
    "regime": "Generated.",
    "use": ["preset/linear-paper"],
    "seeds": [0, 1],
    "columns": ["p_at_1", "psp_at_1", "psp_at_5", "scored_change"],
    "rows": {
        "none": {"title": "None", "candidate": "dismec"},
        "pw": {
            "title": "PW",
            "candidate": "dismec-pw",
            "published": {"method": "DiSMEC PW"},
            "against": "none",
            "differs": ["train_linear.weighting"],
        },
    },
    "claims": [
        {"says": "PW helps.", "judged": "rises", "row": "pw", "metrics": ["psp_at_1", "psp_at_5"]}
    ],
}


def study(**changes: Any) -> StudyParams:
    content = copy.deepcopy(STUDY)
    for path, value in changes.items():
        *inner, last = path.split("__")
        target: Any = content
        for key in inner:
            target = target[int(key) if isinstance(target, list) else key]
        target[last] = value
    found: StudyParams = parse(content, StudyParams, "s.yaml: ")
    return found


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows__pw__against": "nine"}, "no row 'nine'"),
        ({"rows__pw__differs": []}, "belong together"),
        ({"claims__0__metrics": ["p_at_9"]}, "'p_at_9' is not among the columns"),
        ({"claims__0__metrics": []}, "rises needs `metrics`"),
        ({"claims__0__row": "pww"}, "did you mean 'pw'"),
        ({"claims__0__judged": "wins"}, "got 'wins'"),
        ({"claims__0__judged": "at_least"}, "need a `value`"),
        ({"claims__0__judged": "order"}, "two `rows`"),
        ({"claims__0__judged": "cannot_be_tested_here"}, "needs `why`"),
        ({"seeds": [0, 0]}, "one stands twice"),
        ({"seeds": []}, "seeds"),
        ({"claims": []}, "claims"),
        ({"params": {"train_linaer": {}}}, "did you mean 'train_linear'"),
        ({"paper": "BERT"}, "got 'BERT'"),
        ({"spice": 1}, "spice"),
    ],
)
def test_a_broken_study_is_refused_with_its_place(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        study(**changes)
    assert said in str(error.value)
    assert "s.yaml" in str(error.value)


def test_a_study_is_found_by_name_and_misspelt_ones_are_helped(tmp_path: Path) -> None:
    with open(tmp_path / "weights.yaml", "w") as file:
        YAML(typ="safe", pure=True).dump(STUDY, file)
    assert study_params.load("weights", tmp_path) == study()
    for name in ("weight", "../weights", "Weights"):
        with pytest.raises(ConfigError, match="no study"):
            study_params.load(name, tmp_path)
    content = copy.deepcopy(STUDY)
    content["claims"][0]["row"] = "none"  # a control has nothing to be held against
    with open(tmp_path / "weights.yaml", "w") as file:
        YAML(typ="safe", pure=True).dump(content, file)
    with pytest.raises(ConfigError, match="no row to be held against"):
        study_params.load("weights", tmp_path)


# --- published figures ---------------------------------------------------------------------------


def test_published_figures_are_found_however_a_paper_spells_them() -> None:
    one = study(rows__none__published={"method": "DiSMEC Original"})
    assert published.of_row(one, "pw", "psp_at_1") == 43.05
    assert published.of_row(one, "pw", "psndcg_at_3") == 46.19  # PnD@3
    assert published.of_row(one, "pw", "scored_change") == 3.89
    assert published.gain(one, "pw", "none", "psp_at_1") == 1.85
    assert published.of_row(one, "pw", "recall_at_5") is None
    assert published.of_row(study(), "none", "psp_at_1") is None  # it says no method
    assert published.gain(study(), "pw", "none", "psp_at_1") is None


def test_a_row_that_the_paper_prints_as_a_gain_is_base_plus_gain() -> None:
    row = {"method": "Bonsai", "plus_gain": True, "also": "Bonsai + ReRank"}
    one = study(paper="ReRank", tables=["2", "5"], paper_dataset="EUR-Lex", rows__pw__published=row)
    assert published.of_row(one, "pw", "psp_at_1") == 45.06  # 36.91 + 8.15
    assert published.of_row(one, "pw", "p_at_1") == 81.46  # of the other table, under its name
    assert published.check(one) == []


def test_a_method_that_the_tables_do_not_have_is_refused() -> None:
    assert (
        "no 'DiSMEC PPW'" in published.check(study(rows__pw__published={"method": "DiSMEC PPW"}))[0]
    )


def test_a_broken_list_of_figures_is_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    path.write_text("paper,table,dataset,method,metric,value\nPW,3,E,D,P@1,high\n")
    with pytest.raises(DataError, match=r"published\.csv:2: got value 'high'"):
        published.read(path)
    path.with_name("other.csv").write_text("paper,value\nPW,1\n")
    with pytest.raises(DataError, match="got columns"):
        published.read(path.with_name("other.csv"))


# --- params of rows ------------------------------------------------------------------------------


def test_a_row_gets_what_ranks_it_and_nothing_else() -> None:
    content = resolve.params_of(study(), "pw", 1, Sources("demo"))
    assert list(content["train_linear"]) == ["dismec-pw"]
    assert content["train_linear"]["dismec-pw"]["seed"] == 1
    assert content["build_plt"] == {"flat": {"method": "flat"}}  # it has no seed
    assert content["rerank"] == {} == content["train_deep"]


def test_params_of_study_and_row_come_after_the_presets() -> None:
    one = study(
        params={"train_linear": {"dismec-pw": {"C": 3.0}}, "preprocess": {"min_df": 4}},
        rows__pw__params={"train_linear": {"dismec-pw": {"C": 2.0}}},
    )
    content = resolve.params_of(one, "pw", 0, Sources("demo"))
    assert content["train_linear"]["dismec-pw"]["C"] == 2.0
    assert content["train_linear"]["dismec-pw"]["weighting"] == "pw"  # the rest stays
    assert content["preprocess"] == {"min_df": 4}
    bad = study(rows__pw__params={"train_linear": {"dismec-pw": {"CC": 2.0}}})
    with pytest.raises(ConfigError, match="unknown parameter"):
        resolve.params_of(bad, "pw", 0, Sources("demo"))
    with pytest.raises(ConfigError, match="no candidate 'nobody'"):
        resolve.params_of(study(rows__pw__candidate="nobody"), "pw", 0, Sources("demo"))


def test_a_row_is_known_by_what_it_computes_not_by_where_files_lie(tmp_path: Path) -> None:
    content = resolve.params_of(study(), "pw", 0, Sources("demo"))
    moved = copy.deepcopy(content)
    moved["dataset"] |= {"source": str(tmp_path), "note": "other words"}
    moved["threads"] = 2
    assert resolve.digest(moved) == resolve.digest(content)
    for section, key, value in (("preprocess", "min_df", 3), ("dataset", "format", "xmc")):
        other = copy.deepcopy(content)
        other[section][key] = value
        assert resolve.digest(other) != resolve.digest(content)
    later = resolve.params_of(study(), "pw", 1, Sources("demo"))
    assert resolve.digest(later) != resolve.digest(content)


def test_a_control_that_differs_in_more_than_it_says_is_refused() -> None:
    running.check(study(), Sources("demo"))
    more = study(rows__pw__params={"train_linear": {"dismec-pw": {"C": 2.0}}})
    with pytest.raises(ConfigError, match=r"differs in \['train_linear.C', 'train_linear.weight"):
        running.check(more, Sources("demo"))


def test_a_stage_that_only_one_row_has_is_one_difference() -> None:
    one = study(
        params={"rerank": {"q": {"base": "dismec", "strategy": "propensity"}}},
        rows__pw__candidate="q",
        rows__pw__differs=["rerank"],
    )
    running.check(one, Sources("demo"))
    other = study(rows__pw__candidate="fastxml", rows__pw__differs=["train_linear.model"])
    running.check(other, Sources("demo"))  # another model has other keys: that says nothing more


def test_columns_that_no_study_has_are_refused() -> None:
    with pytest.raises(ConfigError, match="speed"):
        running.check(study(columns=["p_at_1", "psp_at_1", "psp_at_5", "speed"]), Sources("demo"))
    change = study(claims__0__metrics=["scored_change"])
    with pytest.raises(ConfigError, match="scored_change is a change"):
        running.check(change, Sources("demo"))
