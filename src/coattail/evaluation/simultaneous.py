"""Comparisons that hold together: intervals for all candidates of a metric at once.

With twenty candidates, one in twenty marks between equals is expected if each has an interval of
its own. Here all intervals of a metric hold at once in `confidence` of the worlds: the largest
error over the comparisons, in units of each one's spread, is read off the paired draws.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NOTHING = 1e-9
"""Points that are rounding, not a difference."""


class Intervals(NamedTuple):
    """Differences and the ends of their intervals, (K,) each; NaN where there is no figure."""

    difference: Array
    low: Array
    high: Array

    @property
    def real(self) -> NDArray[np.bool_]:
        return (self.low > 0) | (self.high < 0)


def from_one(values: Array, draws: Array, one: int, confidence: float) -> Intervals:
    """Differences of all candidates from one that was named beforehand (Dunnett's question).

    Parameters
    ----------
    values : (K,) a metric of K candidates
    draws : (K, R) the same on R resamples, paired: column r has the same texts for all
    """
    errors = draws - values[:, None]
    return around(values - values[one], errors - errors[one], confidence)


def from_best(values: Array, draws: Array, best: int, confidence: float) -> Intervals:
    """Differences of all candidates from the best of them (Tukey's question).

    Who is best was read off the same texts. The intervals hold for every pair, hence also for the
    pairs with whoever happens to lead.
    """
    errors = draws - values[:, None]
    largest = np.full(draws.shape[1], math.nan)
    for i in range(len(values) - 1):
        largest = np.fmax(largest, _largest(errors[i + 1 :] - errors[i]))
    mine = errors - errors[best]
    return _intervals(values - values[best], _spread(mine), _quantile(largest, confidence))


def around(difference: Array, errors: Array, confidence: float) -> Intervals:
    """Intervals of differences (K,) whose errors (K, R) were drawn together."""
    return _intervals(difference, _spread(errors), _quantile(_largest(errors), confidence))


def _largest(errors: Array) -> Array:
    """The largest error of every draw in units of spread, (R,); what never errs has no say."""
    spread = _spread(errors)
    errs = spread > 0  # false for NaN
    if not errs.any():
        return np.full(errors.shape[1], math.nan)
    found: Array = np.fmax.reduce(np.abs(errors[errs]) / spread[errs, None], axis=0)
    return found


def _spread(errors: Array) -> Array:
    """Standard deviation of every row, (K,), over the draws that have a figure."""
    there = ~np.isnan(errors)
    count = there.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(there, errors, 0).sum(axis=1) / count
        squares = np.where(there, errors - mean[:, None], 0) ** 2
        spread = np.sqrt(squares.sum(axis=1) / count)
    return np.where(spread < NOTHING, 0.0, spread)


def _quantile(largest: Array, confidence: float) -> float:
    largest = largest[~np.isnan(largest)]
    return float(np.quantile(largest, confidence)) if len(largest) else 0.0


def _intervals(difference: Array, spread: Array, critical: float) -> Intervals:
    difference = np.where(np.abs(difference) < NOTHING, 0.0, difference)
    half = critical * spread  # NaN where nothing was drawn
    return Intervals(difference, difference - half, difference + half)
