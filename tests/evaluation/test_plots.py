"""Pictures for MLflow show the figures of an evaluation, also of one with gaps."""

from __future__ import annotations

import math

import pytest

from coattail.evaluation import plots
from coattail.evaluation.scoring import TABLES, Evaluation

NAN = math.nan


def evaluation(**tables: list[dict]) -> Evaluation:
    """Two candidates; `empty` has no figure at all."""
    bands = {
        f"{band}_recall_at_5": value
        for band, value in zip(("head", "torso", "tail"), (70.0, 40.0, 5.0), strict=True)
    }
    metrics = {
        "full": {"p_at_5": 50.0, "psp_at_5": 40.0, **bands},
        "empty": {"p_at_5": NAN, "psp_at_5": NAN, **dict.fromkeys(bands, NAN)},
    }
    front = [
        {"candidate": name, "p_at_5": row["p_at_5"], "psp_at_5": row["psp_at_5"], "on_front": True}
        for name, row in metrics.items()
    ]
    bins = [
        {"candidate": name, "bin": label, "order": order, "recall_at_5": row["p_at_5"]}
        for name, row in metrics.items()
        for order, label in enumerate(("1-10", ">10"))
    ]
    filled = {name: [] for name in TABLES} | {"front": front, "bins": bins} | tables
    return Evaluation({"ks": [1, 5], "base": "full"}, metrics, filled)


def points(axes) -> list[list[tuple[float, float]]]:
    """The points of every line, a single dot too."""
    return [[tuple(point) for point in line.get_xydata().tolist()] for line in axes.lines]


def written(axes) -> list[str]:
    """What stands within the axes."""
    return [text.get_text() for text in axes.texts]


def test_the_front_joins_its_candidates_and_names_those_that_have_figures():
    rows = [("a", 40.0, 30.0, True), ("b", 60.0, 20.0, True), ("c", 50.0, 10.0, False)]
    names = ("candidate", "p_at_5", "psp_at_5", "on_front")
    given = [dict(zip(names, row, strict=True)) for row in [*rows, ("empty", NAN, NAN, True)]]
    (axes,) = plots.front(evaluation(front=given)).axes
    assert points(axes)[0] == [(40, 30), (60, 20)]
    assert sorted(points(axes)[1:]) == [[(40, 30)], [(50, 10)], [(60, 20)]]
    colours = {
        point[0]: line.get_color() for line, point in zip(axes.lines, points(axes), strict=True)
    }
    assert colours[(40, 30)] == colours[(60, 20)] != colours[(50, 10)]
    assert sorted(written(axes)) == ["a", "b", "c"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("P@5", "PSP@5")


def test_a_front_of_nobody_is_empty():
    (axes,) = plots.front(evaluation(front=[])).axes
    assert points(axes) == [[]]
    assert not written(axes)


def test_the_bands_of_all_candidates_stand_side_by_side_the_best_at_the_top():
    figure = plots.of_all(evaluation())["bands.png"]
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["empty", "full"]
    bars = {bar.get_label(): [patch.get_width() for patch in bar] for bar in axes.containers}
    assert bars == {"head": [0, 70], "torso": [0, 40], "tail": [0, 5]}
    assert written(axes) == ["70.0", "40.0", "5.0"]
    heights = [bar[1].get_y() for bar in axes.containers]
    assert heights == sorted(heights, reverse=True)  # the head first


@pytest.mark.parametrize("name", ["full", "empty"])
def test_a_candidate_is_drawn_beside_the_base(name):
    (figure,) = plots.of_candidate(evaluation(), name).values()
    known = {"full": [70, 40, 5], "empty": [0, 0, 0]}
    shown = list(dict.fromkeys([name, "full"]))
    bars, lines = figure.axes
    heights = [(bar.get_label(), [patch.get_height() for patch in bar]) for bar in bars.containers]
    assert heights == [(one, known[one]) for one in shown]
    assert written(bars) == ["70.0", "40.0", "5.0"]  # a gap is not called 0
    assert [text.get_text() for text in lines.get_legend().get_texts()] == shown
    recall = {"full": [50, 50], "empty": []}
    assert [line.get_ydata().tolist() for line in lines.lines] == [recall[one] for one in shown]


def test_a_candidate_with_probabilities_gets_a_third_panel():
    rows = [
        {"candidate": "full", "bin": "0.0-0.1", "probability": 5.0, "right": 6.0, "predictions": 9}
    ]
    (figure,) = plots.of_candidate(evaluation(calibration=rows), "full").values()
    assert len(figure.axes) == 3
    assert points(figure.axes[2]) == [[(0, 0), (100, 100)], [(5, 6)]]
    (other,) = plots.of_candidate(evaluation(calibration=rows), "empty").values()
    assert len(other.axes) == 2
