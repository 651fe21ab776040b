"""Weights on the positive part of a loss, so that labels with missing positives count more.

PW    2 q - 1 with q the inverse propensity (Qaraei et al. 2021)
PW-cb PW times the class-balanced factor (1 - beta)/(1 - beta^n) of a label with n texts

PW-cb balances what was made unbiased. In the other order (eqs. 18 to 20 compare both) the balanced
loss is estimated without bias, and positives weigh q r + q - 1 with r that factor: ``pwcb_first``.

A label without a text counts as having one, as in the authors' code for networks. It has no
positive to weigh; what it changes is the mean of normalised weights.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coattail.labels.frequency import inverse_propensity

Weighting = Literal["none", "pw", "pwcb", "pwcb_first"]


def positive_weights(
    weighting: Weighting,
    counts: ArrayLike,
    n_texts: int,
    propensity: tuple[float, float] = (0.55, 1.5),
    beta: float = 0.9,
    *,
    normalise: bool = False,
) -> NDArray[np.float64]:
    """Weight of the positives of every label (or node of a tree), (g,).

    Parameters
    ----------
    counts : int (g,)
        Texts of every label.
    n_texts : int
        Texts that they were counted in.
    propensity : A and B of the dataset.
    beta : class balance of ``pwcb`` and ``pwcb_first``.
    normalise : scale to mean 1 (eq. 24).
    """
    n = np.maximum(np.asarray(counts, np.int64), 1)
    if weighting == "none":
        return np.ones(len(n))
    q = inverse_propensity(n, n_texts, *propensity)
    weights = pw(q)
    if weighting == "pwcb":
        weights = balanced(weights, n, beta)
    elif weighting == "pwcb_first":
        weights = balanced_first(q, balanced(1.0, n, beta))
    return weights * len(weights) / weights.sum() if normalise else weights


def pw(q: ArrayLike) -> NDArray[np.float64]:
    """``2 q - 1``."""
    return 2.0 * np.asarray(q, np.float64) - 1.0


def balanced(weights: ArrayLike, counts: ArrayLike, beta: float) -> NDArray[np.float64]:
    """Weights times ``(1 - beta)/(1 - beta^n)``, for n texts or, where there is none, one."""
    n = np.maximum(np.asarray(counts, np.float64), 1.0)
    return np.asarray(weights, np.float64) * (1.0 - beta) / (1.0 - beta**n)


def balanced_first(q: ArrayLike, factor: ArrayLike) -> NDArray[np.float64]:
    """``q r + q - 1``, where r is the factor of class balance."""
    inverse = np.asarray(q, np.float64)
    return inverse * np.asarray(factor, np.float64) + inverse - 1.0
