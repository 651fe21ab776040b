"""Verdicts: every rule on both sides of its border."""

from __future__ import annotations

import math
from typing import Any

import pytest

from coattail.studies import verdicts
from coattail.studies.figures import Figure
from coattail.studies.outcome import Found, RowFound, pair
from coattail.studies.study_params import ClaimParams
from tests.studies.test_study_params import study

RISES = {"says": "It rises.", "judged": "rises", "row": "pw", "metrics": ["psp_at_1"]}


def found(difference: tuple[float, float, float], **rows: list[str]) -> Found:
    """A study of two rows with one difference in PSP@1; ``rows`` say why some did not converge."""
    value, low, high = difference
    own = {"psp_at_1": Figure(50.0, 0.1, 49.0, 51.0)}
    return Found(
        dataset="demo", data="", processor="any", texts={}, labels=9, labels_per_text=2.0,
        seeds=[0], resamples=100,
        rows={name: RowFound("", {}, own, {}, rows.get(name, [])) for name in ("none", "pw")},
        differences={pair("pw", "none"): {"psp_at_1": Figure(value, 0.1, low, high)}},
    )  # fmt: skip


def word(claim: dict[str, Any], difference: tuple[float, float, float], **rows: list[str]) -> str:
    one = study(claims=[claim], rows__none__published={"method": "DiSMEC Original"})
    return verdicts.judge(one, found(difference, **rows))[0].word


@pytest.mark.parametrize(
    ("difference", "wanted"),
    [
        ((2.0, 1.0, 3.0), "holds"),  # the paper's +1.85 is inside
        ((5.0, 4.0, 6.0), "holds"),  # more than the paper
        ((1.0, 0.5, 1.5), "holds weaker"),
        ((1.0, 0.0, 2.0), "undecided"),  # the lower end has to be above 0
        ((0.1, -1.0, 1.2), "undecided"),
        ((-1.0, -2.0, 0.0), "does not hold"),
        ((0.0, 0.0, 0.0), "does not hold"),  # equal rankings
        ((math.nan, math.nan, math.nan), "undecided"),
    ],
)
def test_rises_asks_for_the_whole_interval_and_for_the_papers_gain(
    difference: tuple[float, float, float], wanted: str
) -> None:
    assert word(RISES, difference) == wanted


def test_falls_is_the_mirror() -> None:
    falls = RISES | {"judged": "falls"}
    assert word(falls, (-2.0, -3.0, -1.0)) == "holds"
    assert word(falls, (-1.0, -2.0, 0.0)) == "undecided"
    assert word(falls, (1.0, 0.0, 2.0)) == "does not hold"


def test_a_margin_is_what_does_not_matter() -> None:
    assert word(RISES | {"margin": 1.0}, (2.0, 1.0, 3.0)) == "undecided"
    assert word(RISES | {"margin": 3.0}, (2.0, 1.0, 3.0)) == "does not hold"
    below = RISES | {"judged": "not_below", "margin": 0.5}
    assert word(below, (0.0, -0.5, 0.4)) == "holds"
    assert word(below, (-0.4, -0.6, 0.1)) == "undecided"
    assert word(below, (-1.0, -2.0, -0.6)) == "does not hold"


@pytest.mark.parametrize(
    ("judged", "value", "wanted"),
    [
        ("at_most", 51.0, "holds"),
        ("at_most", 50.5, "undecided"),
        ("at_most", 48.9, "does not hold"),
        ("at_least", 49.0, "holds"),
        ("at_least", 50.0, "undecided"),
        ("at_least", 51.1, "does not hold"),
    ],
)
def test_bounds_look_at_the_figures_own_interval(judged: str, value: float, wanted: str) -> None:
    assert word(RISES | {"judged": judged, "value": value}, (1.0, 0.5, 1.5)) == wanted


def test_an_order_needs_every_step() -> None:
    order = {"says": "o", "judged": "order", "rows": ["pw", "none"], "metrics": ["psp_at_1"]}
    assert word(order, (1.0, 0.5, 1.5)) == "holds"
    assert word(order, (1.0, -0.5, 1.5)) == "holds weaker"
    assert word(order, (-0.1, -0.5, 0.4)) == "undecided"
    assert word(order, (-1.0, -1.5, -0.5)) == "does not hold"
    back = order | {"rows": ["none", "pw"]}  # measured the other way round
    assert word(back, (-1.0, -1.5, -0.5)) == "holds"


def test_without_a_row_or_convergence_there_is_no_verdict() -> None:
    said = verdicts.judge(study(claims=[RISES]), None)[0]
    assert (said.word, said.why) == ("undecided", "row pw is missing")
    reason = ["train_linear@x: 5 classifiers ended at their limit"]
    for row in ("none", "pw"):
        assert word(RISES, (2.0, 1.0, 3.0), **{row: reason}) == "undecided"
    elsewhere = {"says": "GPU.", "judged": "cannot_be_tested_here", "why": "no GPU"}
    assert word(elsewhere, (2.0, 1.0, 3.0)) == "cannot be tested here"


def test_a_claim_on_several_figures_has_one_word() -> None:
    word_of = {"h": "holds", "w": "holds weaker", "n": "does not hold", "u": "undecided"}
    for parts, wanted in {
        "hh": "holds", "hw": "holds weaker", "hn": "holds weaker", "hu": "holds weaker",
        "nn": "does not hold", "nu": "does not hold", "uu": "undecided", "wu": "holds weaker",
    }.items():  # fmt: skip
        made = [verdicts.Verdict(word_of[part], part) for part in parts]  # type: ignore[arg-type]
        said = verdicts._together(made)
        assert (said.word, said.why) == (wanted, "; ".join(parts))


def test_a_changed_claim_changes_the_verdict_without_a_run() -> None:
    assert word(RISES, (2.0, 1.0, 3.0)) == "holds"
    assert word(RISES | {"judged": "falls"}, (2.0, 1.0, 3.0)) == "does not hold"
    other = RISES | {"metrics": ["p_at_1"]}
    one = study(claims=[other])
    said = verdicts.judge(one, found((2.0, 1.0, 3.0)))[0]
    assert said.word == "undecided"
    assert "run the study again" in said.why


def test_claims_know_their_control() -> None:
    one = study()
    assert one.control(one.claims[0]) == "none"
    named = ClaimParams(**(RISES | {"against": "pw"}))
    assert one.control(named) == "pw"
