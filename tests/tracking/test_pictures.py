"""Pictures that another process draws are those drawn here, also when it does not finish."""

from __future__ import annotations

from coattail.tracking.publishing import pictures
from tests.evaluation.test_plots import evaluation


def test_another_process_draws_the_same():
    drawn = pictures.begin(evaluation())
    for name in (None, "full", "empty"):
        assert drawn(name) == pictures.draw(evaluation(), name)
    assert set(drawn(None)) == {"front.png", "bands.png"}


def test_if_it_ends_early_they_are_drawn_here(monkeypatch):
    monkeypatch.setattr(pictures, "_send", lambda *_: None)
    assert pictures.begin(evaluation())("full") == pictures.draw(evaluation(), "full")
