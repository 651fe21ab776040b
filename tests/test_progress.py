"""Lines of progress in a log: what is done, how fast, how long to go."""

from __future__ import annotations

import logging

import pytest

from coattail import progress
from coattail.progress import Progress, clock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that a test moves."""
    time = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: time[0])
    return time


def test_a_line_tells_the_rate_and_the_time_left(now: list[float]) -> None:
    bar = Progress("train", 1000, "texts", every=10)
    bar.advance(200, "loss 0.5")
    now[0] += 20
    assert bar.line() == "train: 200/1,000 texts, 10 texts/s, 1 min 20 s left, loss 0.5"


def test_what_an_earlier_run_did_counts_as_done_but_not_as_speed(now: list[float]) -> None:
    bar = Progress("train", 1000, "texts", every=10)
    bar.advance(700, new=False)
    assert bar.line() == "train: 700/1,000 texts, 0 texts/s, ? left"
    bar.advance(100)
    now[0] += 10
    assert bar.line() == "train: 800/1,000 texts, 10 texts/s, 20.0 s left"


def test_parts_read_from_an_earlier_run_count_as_done_but_not_as_speed(now: list[float]) -> None:
    bar = Progress("train", 1000, "labels", every=10)
    bar.advance(600, new=False)
    bar.advance(100)
    bar.advance(100, new=False)
    now[0] += 10
    assert bar.line() == "train: 800/1,000 labels, 10 labels/s, 20.0 s left"


def test_the_last_line_says_what_this_run_did(
    now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "coattail"), progress.progress("train", 10, "texts") as bar:
        bar.advance(6, new=False)
        bar.advance(4)
        now[0] += 2
    assert caplog.messages == ["train: 4 texts in 2.0 s"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(3.21, "3.2 s"), (245, "4 min 05 s"), (7400, "2 h 03 min"), (float("inf"), "?")],
)
def test_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown
