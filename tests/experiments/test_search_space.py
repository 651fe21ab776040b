"""Ranges and choices of `coattail tune`: what they mean, what is refused and how."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coattail.errors import ConfigError
from coattail.experiments import search_space
from coattail.experiments.search_space import Choice, Range
from coattail.models.deep.deep_params import AttentionXmlParams
from coattail.models.linear.linear_params import OvrParams

SECTION: dict[str, Any] = {
    "model": "ovr",
    "train": "features/tfidf/train",
    "tree": "flat",
    "C": 1.0,
}


def read(*texts: str) -> list[search_space.Dimension]:
    return search_space.read(texts, SECTION, OvrParams(**SECTION))


def test_ranges_and_choices_are_read() -> None:
    assert read("C=0.1..10:log", "weighting=none,pw,pwcb", "negatives=1..9:4") == [
        Range("C", 0.1, 10.0, True, None, False),
        Choice("weighting", ("none", "pw", "pwcb")),
        Range("negatives", 1.0, 9.0, False, 4.0, True),
    ]


def test_bounds_written_as_whole_numbers_do_not_make_a_real_parameter_whole() -> None:
    (one,) = read("C=1..10")
    assert isinstance(one, Range)
    assert not one.whole
    assert one.value(2.718281828) == 2.718


def test_values_of_choices_have_the_types_of_yaml() -> None:
    assert read("normalise=true,false")[0].ends() == (True, False)
    assert read("propensity_a=null,0.6")[0].ends() == (None, 0.6)
    deep = AttentionXmlParams(model="attentionxml")
    (one,) = search_space.read(["fc=[8],[16,8]"], {"model": "attentionxml"}, deep)
    assert one == Choice("fc", ([8], [16, 8]))
    assert one.value("[16, 8]") == [16, 8]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prunning=0..1", "unknown parameter 'prunning'; did you mean 'prune'"),
        ("C", "wanted C=0.1..10:log"),
        ("C=", "wanted C=0.1..10:log"),
        ("C=1..", "not a range"),
        ("C=1...5", "1 is not below 0.5"),
        ("C=a..b", "not a range"),
        ("C=1..10:cubic", "not a range"),
        ("C=10..1", "10 is not below 1"),
        ("C=0..1:log", "begins above 0"),
        ("C=1..2:0", "a step is above 0"),
        ("negatives=1.5..9", "takes whole numbers"),
        ("C=-1..1", "greater than 0"),
        ("weighting=none,pww", "'pww'"),
        ("C=[1,2", "not a list of values"),
        ("model=ovr,plt", "cannot be searched"),
        ("seed=0..9", "cannot be searched"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_argument(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(text)
    assert text.partition("=")[0] in str(error.value)
    assert message in str(error.value)


def test_a_parameter_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="C is there twice"):
        read("C=1..2", "C=3..4")


def test_a_small_space_is_a_grid_and_a_real_range_is_none() -> None:
    space = read("weighting=none,pw", "negatives=1..3", "beta=0.1..0.3:0.1")
    found = search_space.grid(space, 18)
    assert found is not None
    assert len(found) == len({tuple(one.items()) for one in found}) == 18
    assert found[-1] == {"weighting": "pw", "negatives": 3, "beta": 0.3}
    assert search_space.grid(space, 17) is None
    assert search_space.grid(read("C=0.1..1"), 10**9) is None


def test_present_values_are_known_where_the_space_holds_them() -> None:
    params = OvrParams(**SECTION)
    assert search_space.present(read("C=0.1..10", "weighting=none,pw"), params) == {
        "C": 1.0,
        "weighting": "none",
    }
    assert search_space.present(read("C=2..10"), params) is None
    assert search_space.present(read("weighting=pw,pwcb"), params) is None


@settings(max_examples=50, deadline=None)
@given(
    st.floats(1e-6, 1e6),
    st.floats(1e-6, 1e6),
    st.floats(0, 1),
    st.booleans(),
)
def test_a_drawn_number_stays_inside_and_is_short(a: float, b: float, at: float, log: bool) -> None:
    low, high = sorted((float(f"{a:g}"), float(f"{b:g}")))
    if low == high:
        return
    (one,) = read(f"C={low!r}..{high!r}{':log' if log else ''}")
    value = one.value(low + at * (high - low))
    assert low <= value <= high
    assert value in (low, high) or float(f"{value:.4g}") == value
    assert not math.isnan(value)
    assert read(str(one))[0].ends() == one.ends()
