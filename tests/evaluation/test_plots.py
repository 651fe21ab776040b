"""Pictures for MLflow are drawn for any evaluation, also one with gaps."""

from __future__ import annotations

import io
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


def size(figure) -> int:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")
    return len(buffer.getvalue())


def test_the_pictures_of_all_candidates_are_drawn_with_and_without_figures():
    drawn = plots.of_all(evaluation())
    assert set(drawn) == {"front.png", "bands.png"}
    assert all(size(figure) > 1000 for figure in drawn.values())
    assert size(plots.front(evaluation(front=[]))) > 1000


@pytest.mark.parametrize("name", ["full", "empty"])
def test_a_candidate_is_drawn_beside_the_base(name):
    (figure,) = plots.of_candidate(evaluation(), name).values()
    assert size(figure) > 1000
    names = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert names == list(dict.fromkeys([name, "full"]))


def test_a_candidate_with_probabilities_gets_a_third_panel():
    rows = [
        {"candidate": "full", "bin": "0.0-0.1", "probability": 5.0, "right": 6.0, "predictions": 9}
    ]
    (figure,) = plots.of_candidate(evaluation(calibration=rows), "full").values()
    assert len(figure.axes) == 3
    (other,) = plots.of_candidate(evaluation(calibration=rows), "empty").values()
    assert len(other.axes) == 2
