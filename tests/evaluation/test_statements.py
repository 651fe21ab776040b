"""What is said of the champion: its reason, its losses, and validation against test."""

from __future__ import annotations

import math

import pytest

from coattail.evaluation import statements
from coattail.evaluation.champion import BestParams, choose, rule
from coattail.evaluation.scoring import TABLES, Evaluation

KS = (1, 3, 5)
VALID = {
    "plain": {"psp_at_5": 40.0, "p_at_1": 80.0},
    "tailed": {"psp_at_5": 44.1, "p_at_1": 79.4},
    "bold": {"psp_at_5": 50.0, "p_at_1": 70.0},
}
TEST = {
    "plain": {"psp_at_5": 39.0, "p_at_1": 79.0, "p_at_5": 50.0},
    "tailed": {"psp_at_5": 43.0, "p_at_1": 78.5, "p_at_5": 45.9},
    "bold": {"psp_at_5": 48.0, "p_at_1": 68.0, "p_at_5": 41.0},
}
LOST = {("tailed", "p_at_5"), ("bold", "p_at_5"), ("bold", "p_at_1")}
"""What is worse than the base beyond chance."""


def found(
    best: BestParams | None = None, valid=VALID, test=TEST, lost=LOST, apart: tuple[str, ...] = ()
) -> Evaluation:
    wanted = rule(best or BestParams(), KS)
    chosen = choose(wanted, valid, "plain")
    comparisons = [
        {"candidate": name, "metric": metric, "against": "base"}
        | {"difference": value - test["plain"][metric], "real": (name, metric) in lost}
        for name, row in test.items()
        for metric, value in row.items()
    ]
    validation = [
        {"candidate": name, "metric": metric, "valid": valid[name][metric]}
        | {"test": test[name][metric], "difference": valid[name][metric] - test[name][metric]}
        | {"real": name in apart}
        for metric in chosen.metrics
        for name in valid
    ]
    summary = {"ks": list(KS), "base": "plain", "candidates": list(valid)}
    tables = {"comparisons": comparisons, "validation": validation}
    return Evaluation(summary | {"champion": chosen.row()}, test, {t: [] for t in TABLES} | tables)


def test_reason_names_rule_gain_and_floor_on_both_halves() -> None:
    assert statements.reason(found()) == (
        "tailed, best PSP@5 on validation of the 2 of 3 candidates with P@1 >= base - 1.0 (79.00). "
        "Against plain on validation: PSP@5 +4.10, P@1 -0.60; on test: PSP@5 +4.00, P@1 -0.50."
    )
    free = found(BestParams(at_least={}))
    assert statements.reason(free) == (
        "bold, best PSP@5 on validation of all 3 candidates. "
        "Against plain on validation: PSP@5 +10.00; on test: PSP@5 +9.00."
    )


def test_reason_in_pieces_is_short_enough_for_tags() -> None:
    assert statements.facts(found()) == {
        "candidate": "tailed",
        "chosen_by": "PSP@5 on validation",
        "floors": "P@1 >= base - 1.0 (79.00)",
        "on_validation": "PSP@5 +4.10, P@1 -0.60 against plain",
        "on_test": "PSP@5 +4.00, P@1 -0.50 against plain",
        "warning": "tailed loses 4.10 P@5 to plain on test, beyond chance",
    }
    base = found(BestParams(at_least={"p_at_1": 79.5}), lost=set())
    assert set(statements.facts(base)) == {"candidate", "chosen_by", "floors", "warning"}


def test_winner_that_loses_something_else_beyond_chance_says_so_aloud() -> None:
    assert statements.warnings(found()) == ["tailed loses 4.10 P@5 to plain on test, beyond chance"]
    assert statements.warnings(found(BestParams(at_least={}))) == [
        "bold loses 11.00 P@1 and 9.00 P@5 to plain on test, beyond chance"
    ]
    assert statements.warnings(found(lost=set())) == []


def test_many_losses_are_named_from_the_largest_and_counted() -> None:
    metrics = ["psp_at_5", *(f"p_at_{k}" for k in KS), "psp_at_1", "ndcg_at_5", "tail_recall_at_5"]
    test = {n: {m: 50.0 - (n == "tailed") * i for i, m in enumerate(metrics)} for n in VALID}
    told = statements.warnings(found(test=test, lost={("tailed", m) for m in metrics}))
    assert told[0] == (
        "tailed loses 6.00 tail recall@5, 5.00 nDCG@5, 4.00 PSP@1, 3.00 P@5 and 2 more metrics "
        "to plain on test, beyond chance"
    )


def test_floor_that_held_on_validation_and_breaks_on_test_is_said_aloud() -> None:
    broken = TEST | {"tailed": TEST["tailed"] | {"p_at_1": 77.25}}
    assert statements.warnings(found(test=broken, lost=set())) == [
        "the floor P@1 >= base - 1.0 held on validation and does not on test: 77.25, wanted 78.00"
    ]


def test_base_as_champion_is_explained() -> None:
    proud = found(BestParams(at_least={"p_at_1": 80}))
    assert statements.reason(proud) == (
        "plain, the only one of 3 candidates with P@1 >= 80.00 on validation."
    )
    alone = found(valid={"plain": VALID["plain"]}, test={"plain": TEST["plain"]})
    assert statements.reason(alone) == "plain, the only candidate."
    assert statements.warnings(proud) == [
        "the floor P@1 >= 80.0 held on validation and does not on test: 79.00, wanted 80.00"
    ]
    none = found(BestParams(at_least={"p_at_1": 90}))
    assert statements.reason(none) == (
        "plain, the base, as no candidate has P@1 >= 90.00 on validation."
    )
    assert statements.warnings(none) == ["plain is published because nothing else could be chosen"]
    blind = {name: {"psp_at_5": math.nan, "p_at_1": math.nan} for name in VALID}
    assert statements.reason(found(valid=blind)) == (
        "plain, the base, as no candidate has a PSP@5 on validation to be chosen by."
    )
    assert statements.gap(found(valid=blind)).endswith("there are no figures on both.")


def test_validation_against_test_is_one_line_with_advice_where_it_is_more_than_chance() -> None:
    means = "Validation minus test, mean of the candidates: PSP@5 +1.37, P@1 +1.30; "
    assert statements.gap(found()) == f"{means}no more than chance."
    assert statements.gap(found(apart=("bold",))).startswith(
        f"{means}beyond chance in PSP@5 (bold) and P@1 (bold). Where texts have a date or come in "
        "groups, cut validation from train by them"
    )
    everyone = statements.gap(found(apart=tuple(VALID)))
    assert "beyond chance in PSP@5 (3 of 3 candidates) and P@1 (3 of 3 candidates)." in everyone
    bold = found(apart=("bold",))
    assert statements.unlike_test(bold) == {"psp_at_5": ["bold"], "p_at_1": ["bold"]}


@pytest.mark.parametrize(
    ("metric", "shown"),
    [
        ("psp_at_5", "PSP@5"),
        ("tail_recall_at_3", "tail recall@3"),
        ("micro_f1_tuned", "micro F1 tuned"),
    ],
)
def test_metrics_have_names_people_read(metric: str, shown: str) -> None:
    assert statements.title(metric) == shown
