"""Steps of the LSTM: against plain formulas in double precision, and differences of the loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from coattail.kernels import lstm

STEPS, BATCH, WIDTH = 5, 3, 4


def squash(x: NDArray, shift: NDArray, function) -> NDArray:
    out = x.copy()
    function(out, shift)
    return out


def sigmoid(x: NDArray) -> NDArray:
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


@settings(deadline=None)  # compiles once
@given(st.lists(st.floats(-300, 300, width=32), min_size=1, max_size=40))
def test_sigmoid_and_tanh_are_right_to_a_ten_millionth(values):
    x = np.array(values, np.float32)
    zero = np.zeros_like(x)
    np.testing.assert_allclose(squash(x, zero, lstm._sigmoids), sigmoid(x), atol=2e-7)
    wanted = np.tanh(x.astype(np.float64))
    np.testing.assert_allclose(squash(x, zero, lstm._tanhs), wanted, atol=3e-7)


def test_what_is_added_counts_and_the_ends_are_reached():
    x, y = np.array([-1e30, 0, 5, 1e30], np.float32), np.array([0, 0, -5, 0], np.float32)
    np.testing.assert_allclose(squash(x, y, lstm._sigmoids), [0, 0.5, 0.5, 1], atol=1e-30)
    np.testing.assert_array_equal(squash(x, y, lstm._tanhs), [-1, 0, 0, 1])


def problem(seed: int = 0) -> dict[str, NDArray]:
    rng = np.random.default_rng(seed)
    return {
        "gates": rng.normal(size=(STEPS, BATCH, 4 * WIDTH)),
        "weights": rng.normal(size=(WIDTH, 4 * WIDTH)),
        "state": rng.normal(size=(BATCH, WIDTH)),
        "cell": rng.normal(size=(BATCH, WIDTH)),
    }


def slow(gates: NDArray, weights: NDArray, state: NDArray, cell: NDArray) -> NDArray:
    """The textbook, in double precision."""
    states = []
    for step in gates:
        i, f, g, o = np.split(step + state @ weights, 4, axis=1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        state = sigmoid(o) * np.tanh(cell)
        states.append(state)
    return np.array(states)


def run(parts: dict[str, NDArray]) -> dict[str, NDArray]:
    """Forward of our kernel, with what backward needs."""
    small = {name: part.astype(np.float32) for name, part in parts.items()}
    kept = {
        "gates": small["gates"],
        "cells": np.zeros((STEPS + 1, BATCH, WIDTH), np.float32),
        "squashed": np.empty((STEPS, BATCH, WIDTH), np.float32),
        "states": np.empty((STEPS, BATCH, WIDTH), np.float32),
    }
    kept["cells"][0] = small["cell"]
    arrays = (kept["cells"], kept["squashed"], kept["states"])
    lstm.forward(kept["gates"], small["weights"], small["state"], *arrays)
    return kept


def test_states_are_those_of_the_textbook():
    parts = problem()
    np.testing.assert_allclose(run(parts)["states"], slow(**parts), atol=2e-6)


@pytest.mark.parametrize("name", ["gates", "state", "cell"])
def test_gradients_are_the_slopes_of_the_textbook(name):
    parts, rng = problem(1), np.random.default_rng(2)
    kept, outer = run(parts), rng.normal(size=(STEPS, BATCH, WIDTH))
    found = {"gates": np.empty_like(kept["gates"])}
    found |= {k: np.zeros((BATCH, WIDTH), np.float32) for k in ("state", "cell")}
    lstm.backward(
        kept["gates"],
        np.ascontiguousarray(parts["weights"].T.astype(np.float32)),
        kept["cells"],
        kept["squashed"],
        outer.astype(np.float32),
        found["gates"],
        found["state"],
        found["cell"],
    )
    for place in np.ndindex(*parts[name].shape):
        ends = []
        for step in (1e-5, -1e-5):
            moved = {k: v.copy() for k, v in parts.items()}
            moved[name][place] += step
            ends.append((slow(**moved) * outer).sum())
        assert found[name][place] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=2e-5)
