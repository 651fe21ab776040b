"""Two fits of a probability: isotonic (non-decreasing in a score), and logistic regression."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]

# A logistic fit of more rows than this starts from a fit of every fourth row: those steps cost a
# quarter, and then one or two steps on all rows are enough.
MANY_ROWS = 8_000


def isotonic(z: Floats, truth: Floats) -> tuple[Floats, Floats]:
    """The non-decreasing function nearest to the truth, as knots of a broken line.

    Equal scores get one value, whatever the order of the rows, so the values sum to the truth.
    `numpy.interp` on the knots equals scikit-learn's IsotonicRegression.
    """
    from scipy.optimize import isotonic_regression  # slow to import, and needed only here

    places, own, times = np.unique(z, return_inverse=True, return_counts=True)
    means = np.bincount(own, truth) / times
    values = isotonic_regression(means, weights=times.astype(np.float64)).x
    inner = np.zeros(len(values), bool)  # within a flat piece: the line is the same without
    inner[1:-1] = (values[1:-1] == values[:-2]) & (values[1:-1] == values[2:])
    return places[~inner], values[~inner]


def logistic(features: Floats, truth: Floats, start: Floats | None = None) -> Floats:
    """Logistic regression with an intercept (first entry, not penalised) by Newton.

    The probabilities of the rows sum to the truth. ``start`` saves steps; the result is the same.
    """
    if start is None:
        start = np.zeros(features.shape[1] + 1)
        if len(features) > MANY_ROWS:
            start = _newton(features[::4], truth[::4], start)
    return _newton(features, truth, start)


def _newton(features: Floats, truth: Floats, w: Floats, ridge: float = 1.0) -> Floats:
    F = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    penalty = np.full(F.shape[1], ridge)
    penalty[0] = 1e-6

    def loss(logit: Floats, w: Floats) -> float:
        return float((np.logaddexp(0, logit) - truth * logit).sum() + 0.5 * penalty @ w**2)

    logit = F @ w
    now = loss(logit, w)
    for _ in range(50):
        p = expit(logit)
        gradient = F.T @ (p - truth) + penalty * w
        hessian = (F * (p * (1 - p))[:, None]).T @ F + np.diag(penalty)
        step = np.linalg.solve(hessian, gradient)
        moved, size = F @ step, 1.0
        while (after := loss(logit - size * moved, w - size * step)) > now + 1e-12 * abs(now):
            if size <= 1e-6:
                break
            size /= 2
        w, logit, now, gained = w - size * step, logit - size * moved, after, now - after
        if gained <= 1e-10 * abs(now):
            break
    return w


def shift_to(logit: Floats, total: float) -> float:
    """What to add to all log-odds so that the probabilities sum to ``total``, by Newton."""
    shift = 0.0
    for _ in range(50):
        p = expit(logit + shift)
        step = (p.sum() - total) / max(float((p * (1 - p)).sum()), 1e-12)
        shift -= step
        if abs(step) < 1e-12:
            break
    return shift


def rounded(values: Floats) -> list[float]:
    """Round to seven digits, so that the order of summation (threads of BLAS) rarely shows."""
    return [float(f"{value:.6e}") for value in values]
