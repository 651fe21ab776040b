"""The champion: chosen on validation by a metric and floors, with clear errors."""

from __future__ import annotations

import math

import pytest

from coattail import config
from coattail.errors import ConfigError, DataError
from coattail.evaluation import champion
from coattail.evaluation.champion import BestParams, choose
from coattail.evaluation.metrics import names
from coattail.evaluation.scoring import EvaluateParams

KS = (1, 3, 5)
VALID = {
    "base": {"psp_at_5": 40.0, "p_at_1": 80.0},
    "tail": {"psp_at_5": 50.0, "p_at_1": 73.5},
    "both": {"psp_at_5": 44.0, "p_at_1": 79.2},
    "head": {"psp_at_5": 42.0, "p_at_1": 85.0},
}


def chosen(valid: dict[str, dict[str, float]] = VALID, **best: object) -> champion.Champion:
    params: BestParams = config.parse(best, BestParams, "evaluate.best")
    return choose(champion.rule(params, KS), valid, "base")


def test_best_metric_among_those_above_the_floor_wins() -> None:
    found = chosen()
    assert found.name == "both"
    assert found.cleared == ["base", "both", "head"]
    assert found.floors == {"p_at_1": 79.0}
    assert found.falls_short("p_at_1", 73.5)
    assert not found.falls_short("p_at_1", 79.0)
    assert not found.falls_short("psp_at_5", 0.0), "a metric without a floor"


def test_without_a_floor_the_metric_alone_decides() -> None:
    assert chosen(at_least={}).name == "tail"
    assert chosen(by="p_at_1", at_least={}).name == "head"


@pytest.mark.parametrize(
    ("floor", "points", "winner"),
    [
        (79.5, 79.5, "head"),
        (80, 80.0, "head"),
        ("base", 80.0, "head"),
        ("base - 0.5", 79.5, "head"),
        ("base-7", 73.0, "tail"),
        ("base + 0.1", 80.1, "head"),
        ("base  -  0.8", 79.2, "both"),  # as much as the floor is enough
    ],
)
def test_floor_is_a_number_or_so_many_points_from_the_base(floor, points, winner) -> None:
    found = chosen(at_least={"p_at_1": floor})
    assert found.floors["p_at_1"] == pytest.approx(points)
    assert found.name == winner


@pytest.mark.parametrize(
    "floor", ["bas - 1", "base - x", "base * 2", "base - -1", "79", "", None, True, math.nan]
)
def test_what_is_no_floor_is_refused_with_what_was_wanted(floor) -> None:
    with pytest.raises(ConfigError, match=r"at_least\.p_at_1: got .*wanted a number, base, base -"):
        config.parse(
            {"best": {"at_least": {"p_at_1": floor}}}, EvaluateParams, "params.yaml: evaluate"
        )


def test_unknown_metric_is_refused_with_a_suggestion() -> None:
    params = BestParams(by="pps_at_5", at_least={"p_at_2": 5.0, "tail_recall_at_5": 1.0})
    assert champion.complaints(params, KS) == [
        "evaluate.best.by: no metric 'pps_at_5'; did you mean 'psp_at_5'?",
        "evaluate.best.at_least.p_at_2: no metric 'p_at_2'; did you mean 'p_at_5'?",
    ]
    assert champion.complaints(BestParams(by="speed"), KS) == [
        "evaluate.best.by: no metric 'speed'; docs/explanation/metrics.md lists them"
    ]
    assert champion.complaints(BestParams(by="complete_p_at_5"), KS), "nobody has that elsewhere"
    for metric in names(KS):
        assert not champion.complaints(BestParams(by=metric), KS)


def test_defaults_follow_the_ranks() -> None:
    found = champion.rule(BestParams(), (2, 4))
    assert (found.by, found.at_least) == ("psp_at_4", {"p_at_2": "base - 1.0"})
    assert not champion.complaints(BestParams(), (2, 4))


def test_where_nobody_clears_the_floors_the_base_is_champion() -> None:
    found = chosen(at_least={"p_at_1": 99.0})
    assert (found.name, found.cleared) == ("base", [])


def test_of_equals_the_first_is_champion() -> None:
    valid = VALID | {"twin": VALID["both"]}
    assert chosen(valid).name == "both"
    assert chosen(dict(reversed(valid.items()))).name == "twin"


def test_candidate_without_a_figure_on_validation_is_not_chosen() -> None:
    nothing = {"psp_at_5": math.nan, "p_at_1": math.nan}
    assert chosen(VALID | {"both": nothing}).name == "head"
    assert chosen(dict.fromkeys(VALID, nothing)).cleared == []
    found = chosen(VALID | {"base": nothing})
    assert found.floors == {"p_at_1": None}
    assert (found.name, found.cleared) == ("base", []), "no floor to measure from"
    assert chosen(VALID | {"base": nothing}, at_least={"p_at_1": 79.0}).name == "both"


def test_champion_is_read_back_from_the_summary() -> None:
    assert champion.Champion.of({"champion": chosen().row()}) == chosen()
    for old in ({"base": "base"}, {"champion": {"winner": "base"}}):
        with pytest.raises(DataError, match="knows no champion; run dvc repro evaluate"):
            champion.Champion.of(old)
