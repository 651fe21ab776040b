"""Paired bootstrap over texts: how far a metric, or a difference of two, may be chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from coattail.evaluation.metrics import Ratio

# How often each text is drawn is held for this many bytes of resamples at a time.
BLOCK_BYTES = 64 << 20


def resample(
    ratios: Mapping[str, Ratio], resamples: int, seed: int | Sequence[int]
) -> dict[str, NDArray[np.float64]]:
    """Each metric on every resample of the texts, (resamples,) in percent.

    Texts are drawn with replacement and the ratio of sums is taken anew, so a text brings its
    numerator and its denominator along. The same seed and number of texts draw the same texts:
    the values of two candidates are paired, position by position. NaN where a resample has
    nothing in the denominator.
    """
    from coattail.kernels import hits as kernels

    columns = np.column_stack([part for ratio in ratios.values() for part in ratio])
    columns = np.ascontiguousarray(columns, np.float64)  # (n, 2 m)
    n = len(columns)
    rng = np.random.default_rng(seed)
    sums = np.empty((resamples, columns.shape[1]))
    step = max(1, BLOCK_BYTES // (4 * max(n, 1)))
    for start in range(0, resamples, step):
        block = sums[start : start + step]
        times = np.empty((len(block), n), np.int32)
        for row in times:
            row[:] = np.bincount(rng.integers(0, n, n), minlength=n) if n else 0
        kernels.resampled_sums(times, columns, block)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = 100 * sums[:, 0::2] / sums[:, 1::2]  # (resamples, m)
    return {name: values[:, j] for j, name in enumerate(ratios)}


def interval(values: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    """The middle ``confidence`` of the resampled values; resamples that are NaN do not vote."""
    values = values[~np.isnan(values)]
    if not len(values):
        return math.nan, math.nan
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def bouts(mine: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[int, int, int]:
    """Texts on which the first gained more, as much, less than the second: win, tie, loss."""
    difference = mine - other
    wins, losses = int((difference > 1e-9).sum()), int((difference < -1e-9).sum())
    return wins, len(difference) - wins - losses, losses
