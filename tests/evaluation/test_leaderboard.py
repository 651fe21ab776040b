"""The leaderboard: order, marks, width."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from coattail.errors import ConfigError
from coattail.evaluation import leaderboard
from coattail.evaluation.champion import BestParams, choose, rule
from coattail.evaluation.scoring import TABLES, Evaluation, headline

METRICS = ("p_at_1", "p_at_5", "ndcg_at_5", "psp_at_1", "psp_at_5")
PARTS = ("head_recall_at_5", "tail_recall_at_5", "tail_coverage_at_5")


def board(**values: dict[str, float]) -> Evaluation:
    """Three candidates that are 50 in everything not named; `first` is the base."""
    names = ("first", "second", "a-candidate-with-quite-a-long-name")
    metrics = {
        name: dict.fromkeys((*METRICS, *PARTS, *headline((1, 3, 5))), 50.0)
        | values.get(name.split("-")[0], {})
        for name in names
    }
    comparisons = [
        {
            "candidate": name,
            "metric": metric,
            "against": "base",
            "other": "first",
            "difference": metrics[name][metric] - metrics["first"][metric],
            "low": -0.5,
            "high": 1.5,
            "real": abs(metrics[name][metric] - metrics["first"][metric]) > 1,
        }
        for name in names
        for metric in METRICS
    ]
    summary = {
        "ks": [1, 3, 5],
        "base": "first",
        "texts": 2000,
        "labels": 1000,
        "confidence": 0.95,
        "resamples": 1000,
    }
    validation = [
        {"candidate": name, "metric": metric, "valid": values[metric] + 1, "test": values[metric]}
        | {"difference": 1.0, "low": -0.5, "high": 2.5, "real": False}
        for metric in ("psp_at_5", "p_at_1")
        for name, values in metrics.items()
    ]
    champion = choose(
        rule(BestParams(), (1, 3, 5)),
        {name: {m: v + 1 for m, v in row.items()} for name, row in metrics.items()},
        "first",
    )
    summary |= {"champion": champion.row(), "candidates": list(names)}
    tables = {"comparisons": comparisons, "validation": validation}
    return Evaluation(summary, metrics, {t: [] for t in TABLES} | tables)


def rows(text: str) -> dict[str, list[str]]:
    """The cells of the first table."""
    lines = [line.split() for line in text.partition("chosen on validation")[0].splitlines()]
    return {
        line[0]: [cell for cell in line[1:] if cell.strip("(,)") not in ("base", "champion")]
        for line in lines
        if line and line[0] in ("first", "second", "a-candidate-with-quite-a-long-name")
    }


def test_candidates_are_sorted_by_psp_unless_told_otherwise() -> None:
    evaluation = board(second={"psp_at_5": 60.0}, a={"p_at_1": 70.0, "psp_at_5": 55.0})
    long = "a-candidate-with-quite-a-long-name"
    assert list(rows(leaderboard.text(evaluation))) == ["second", long, "first"]
    assert next(iter(rows(leaderboard.text(evaluation, sort="p_at_1")))) == long


def test_best_of_a_column_has_a_star_and_real_differences_a_mark() -> None:
    evaluation = board(second={"p_at_1": 51.0, "p_at_5": 55.0, "psp_at_5": 40.0})
    cells = rows(leaderboard.text(evaluation))["second"]
    assert cells[:5] == ["*51.00", "*55.00▲", "*50.00", "*50.00", "40.00▼"]


def test_undefined_value_is_a_dash_and_comes_last() -> None:
    evaluation = board(second={"psp_at_5": math.nan, "p_at_1": 100.0})
    found = rows(leaderboard.text(evaluation))
    assert list(found)[-1] == "second"
    assert found["second"][4] == "-"
    assert found["second"][0] == "*100.0▲"


def test_table_fits_into_100_columns_and_says_what_the_marks_mean() -> None:
    text = leaderboard.text(board(second={"p_at_5": 99.0, "psp_at_5": 99.0}))
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    caption = " ".join(text.split())
    assert (
        "better or worse than first beyond chance, by 95% paired bootstrap intervals that hold for "
        "all candidates of a column at once (P@5: ±1.00 or less)" in caption
    )
    assert "2,000 test texts, 1,000 labels" in caption


def test_numbers_and_names_stay_whole_in_a_narrow_terminal() -> None:
    text = leaderboard.text(board(second={"psp_at_5": 77.77}), width=80)
    assert "*77.77▲" in text
    assert "a-candidate-with-quite-a-long-name" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "Left out for want of width: nDCG@5, PSP@1, tail cov@5." in " ".join(text.split())
    assert "Left out" not in leaderboard.text(board(), width=100)


def test_column_that_is_sorted_by_is_never_left_out() -> None:
    table = leaderboard.render(board(), sort="psp_at_1", plain=True, width=80)
    assert "PSP@1↓" in leaderboard.plain_text(table, 80)


def test_second_table_shows_validation_beside_test_and_who_misses_the_floor() -> None:
    evaluation = board(second={"psp_at_5": 60.0}, a={"psp_at_5": 70.0, "p_at_1": 40.0})
    text = leaderboard.text(evaluation)
    lines = text.partition("chosen on validation")[2].splitlines()
    cells = [line.split() for line in lines if "0.00" in line or "1.00" in line]
    long = "a-candidate-with-quite-a-long-name"
    assert cells[0] == [long, "71.00", "+1.00", "41.00✗", "+1.00"]
    assert cells[1] == ["second", "(champion)", "61.00", "+1.00", "51.00", "+1.00"]
    assert cells[2][:2] == ["first", "(base)"]
    assert "✗: below the floor." in text
    assert "Champion: second, best PSP@5 on validation of the 2 of 3 candidates" in text


def test_figures_of_validation_beyond_chance_from_test_carry_a_mark() -> None:
    evaluation = board(second={"psp_at_5": 60.0})
    assert "≠" not in leaderboard.text(evaluation)
    for row in evaluation.tables["validation"]:
        row["real"] = row["candidate"] == "second"
    text = leaderboard.text(evaluation)
    assert "+1.00≠" in text
    assert "≠: beyond chance." in text


def test_unknown_metric_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'psp_at_5'"):
        leaderboard.render(board(), sort="pps_at_5")


def test_show_prints_the_table_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board(second={"psp_at_5": 60.0}).write(tmp_path / "e", tmp_path / "m", tmp_path / "p")
    leaderboard.show(tmp_path / "e")
    assert rows(capsys.readouterr().out)["second"][4] == "*60.00▲"
