"""Effects of a factorial, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coattail.errors import ConfigError
from coattail.evaluation.metrics import FOLLOWED, Ratio
from coattail.studies import factorial, resolve, verdicts
from coattail.studies.assemble import assemble
from coattail.studies.figures import Figure
from coattail.studies.kept import KeptRows, Ran
from coattail.studies.outcome import Found, RowFound
from coattail.studies.resolve import Sources
from coattail.studies.study_params import StudyParams
from tests.studies.test_study_params import study

HIGH: dict[str, list[str]] = {"none": [], "c": ["c"], "copies": ["copies"], "both": ["c", "copies"]}
CLAIM = {"says": "C helps.", "judged": "rises", "effect": "c", "metrics": ["psp_at_1"]}


def two_factors(**changes: Any) -> StudyParams:
    rows = {
        name: {"title": name, "candidate": "dismec", "high": high} for name, high in HIGH.items()
    }
    asked: dict[str, Any] = {"factors": ["c", "copies"], "rows": rows, "claims": [CLAIM]}
    return study(**asked | changes)


def test_effects_by_hand() -> None:
    one = two_factors()
    assert factorial.effects(one) == ["c", "copies", "c x copies"]
    values = {"none": [10.0], "c": [14.0], "copies": [11.0], "both": [13.0]}

    def effect(name: str) -> float:
        return float(factorial.contrast(name, factorial.rows(one), values)[0])

    assert effect("c") == pytest.approx(((14 - 10) + (13 - 11)) / 2)
    assert effect("copies") == pytest.approx(((11 - 10) + (13 - 14)) / 2)
    assert effect("c x copies") == pytest.approx(((13 - 11) - (14 - 10)) / 2)


def test_effects_are_taken_draw_by_draw() -> None:
    draws = {name: np.arange(3.0) * len(high) for name, high in HIGH.items()}
    high = {name: frozenset(factors) for name, factors in HIGH.items()}
    assert factorial.contrast("c", high, draws).tolist() == [0, 1, 2]
    assert factorial.contrast("c x copies", high, draws).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"factors": ["c"]}, "'copies' in `high` is not among the factors"),
        ({"factors": ["c", "copies", "tree"]}, "3 of them make 8 rows"),
        ({"rows__c__high": []}, "got 4 rows, 3 of them different"),
        ({"rows__c__high": None}, "got 3 rows"),
        ({"claims": [CLAIM | {"effect": "tree"}]}, "no 'tree' of"),
        ({"claims": [CLAIM | {"row": "c"}]}, "a `row` or an `effect`"),
        ({"claims": [CLAIM | {"judged": "at_least", "value": 1.0}]}, "judged by one of rises"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        two_factors(**changes)


def found(rows: list[str], effects: dict[str, dict[str, Figure]]) -> Found:
    return Found(
        dataset="demo", data="", processor="any", texts={}, labels=9, labels_per_text=2.0,
        seeds=[0], resamples=100, rows={name: RowFound("", {}, {}, {}) for name in rows},
        differences={}, effects=effects,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "low", "high", "word"),
    [
        (list(HIGH), 0.5, 1.5, "holds"),
        (list(HIGH), -0.5, 1.5, "undecided"),
        (list(HIGH), -1.5, -0.5, "does not hold"),
        (["none", "c", "copies"], 0.5, 1.5, "undecided"),  # a row is missing
    ],
)
def test_an_effect_is_judged_like_a_difference(
    rows: list[str], low: float, high: float, word: str
) -> None:
    figure = Figure((low + high) / 2, 0.1, low, high)
    there = found(rows, {"c": {"psp_at_1": figure}})
    assert verdicts.judge(two_factors(), there)[0].word == word


def test_effects_of_an_earlier_run_are_missed() -> None:
    assert "was not compared" in verdicts.judge(two_factors(), found(list(HIGH), {}))[0].why


def test_effects_come_from_kept_rows_once_all_are_there(tmp_path: Path) -> None:
    one = two_factors()
    sources, kept = Sources("demo"), KeptRows(tmp_path)
    rng = np.random.default_rng(0)
    hits = {name: (rng.random(200) < 0.3 + 0.1 * len(high)) * 1.0 for name, high in HIGH.items()}
    for name in HIGH:
        for seed in one.seeds:
            digest = resolve.digest(resolve.params_of(one, name, seed, sources))
            facts = Ran(digest, "", "any", "", "", {}, 9, 2.0, [], None)
            ratios = {metric: Ratio(hits[name], np.ones(200)) for metric in one.columns[:-1]}
            kept.keep(name, seed, facts, ratios | dict.fromkeys(FOLLOWED, ratios["p_at_1"]))
    whole = assemble("s", one, sources, kept, "commit").found
    mean = {name: 100 * values.mean() for name, values in hits.items()}
    c = whole.effects["c"]["psp_at_1"]
    assert c.value == pytest.approx(
        ((mean["c"] + mean["both"]) - mean["none"] - mean["copies"]) / 2
    )
    assert c.low < c.value < c.high
    assert "scored_change" not in whole.effects["c"]
    (tmp_path / "both-seed-0.json").unlink()
    assert assemble("s", one, sources, kept, "commit").found.effects == {}
