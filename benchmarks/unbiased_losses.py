"""Losses when positives are missing: unbiased estimates, convex surrogates, rebalancing, a picture.

A label that applies (y* = 1) is recorded (y = 1) with probability p, its propensity; a label that
does not apply is never recorded. For any loss l(y, s) of a score s the estimate

    l~(1, s) = q l(1, s) - (q - 1) l(0, s),   l~(0, s) = l(0, s),   q = 1/p,

has the mean l(y*, s) over what happens to be recorded (Qaraei et al. 2021, Corollary 1). For the
hinge it is not convex, for all margin losses it has no lower bound. For the 0-1 loss it is, up to
the constant q - 1, the loss itself with the weight 2q - 1 on positives; a convex upper bound of
that is what PW trains. Rebalancing by a factor r on positives may come before or after:

    before:  q (r l(1, s)) - (q - 1) l(0, s)  ->  weight q r + q - 1,
    after:   r (2q - 1)                           (PW-cb, r = (1 - beta)/(1 - beta^n)).

    python benchmarks/unbiased_losses.py docs/pictures/unbiased-losses.png
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coattail.errors import DataError
from coattail.labels.weighting import balanced, balanced_first, pw

Name = Literal["zero_one", "hinge", "squared_hinge", "bce"]
NAMES: tuple[Name, ...] = ("zero_one", "hinge", "squared_hinge", "bce")
Floats = NDArray[np.float64]


def loss(name: Name, y: ArrayLike, s: ArrayLike) -> Floats:
    """Plain loss of scores s for recorded or true labels y in {0, 1}; shapes broadcast."""
    labels = np.asarray(y)
    if not np.all((labels == 0) | (labels == 1)):
        raise DataError("losses: y must hold 0 and 1 only")
    margin = np.where(labels == 1, 1.0, -1.0) * np.asarray(s, np.float64)
    if name == "zero_one":
        # A score of 0 is a decision for the negative class.
        wrong = np.where(labels == 1, np.asarray(s) <= 0, np.asarray(s) > 0)
        return wrong.astype(np.float64)
    if name == "hinge":
        return np.maximum(0.0, 1.0 - margin)
    if name == "squared_hinge":
        return np.square(np.maximum(0.0, 1.0 - margin))
    if name == "bce":
        return np.logaddexp(0.0, -margin)
    raise DataError(f"losses: no loss {name!r}; there is {', '.join(NAMES)}")


def unbiased(name: Name, y: ArrayLike, s: ArrayLike, p: ArrayLike) -> Floats:
    """Estimate of the loss on the complete labels from the recorded ones; p is the propensity."""
    q = _inverse(p)
    positive = q * loss(name, 1, s) - (q - 1.0) * loss(name, 0, s)
    return np.where(np.asarray(y) == 1, positive, loss(name, 0, s))


def surrogate(name: Name, y: ArrayLike, s: ArrayLike, p: ArrayLike) -> Floats:
    """PW: the loss with weight 2q - 1 on positives; convex wherever the plain loss is.

    Hinge and squared hinge bound the unbiased 0-1 loss plus (q - 1) y from above, and so does
    BCE divided by ln 2.
    """
    return weighted(name, y, s, pw(_inverse(p)))


def weighted(name: Name, y: ArrayLike, s: ArrayLike, weight: ArrayLike) -> Floats:
    """The loss with a weight on its positive part."""
    return np.where(np.asarray(y) == 1, np.asarray(weight, np.float64), 1.0) * loss(name, y, s)


def balance(counts: ArrayLike, beta: float) -> Floats:
    """Factor on the positives of a label with n texts, (1 - beta)/(1 - beta^n)."""
    return balanced(1.0, counts, beta)


def rebalanced_then_unbiased(p: ArrayLike, factor: ArrayLike) -> Floats:
    """Positive weight if the complete loss is rebalanced first and estimated without bias then."""
    return balanced_first(_inverse(p), factor)


def unbiased_then_rebalanced(p: ArrayLike, factor: ArrayLike) -> Floats:
    """Positive weight if the estimate's surrogate is rebalanced: what PW-cb trains."""
    return np.asarray(factor, np.float64) * pw(_inverse(p))


def _inverse(p: ArrayLike) -> Floats:
    propensity = np.asarray(p, np.float64)
    if np.any((propensity <= 0) | (propensity > 1)):
        raise DataError("losses: a propensity lies outside (0, 1]")
    return 1.0 / propensity


TITLES: dict[Name, str] = {
    "zero_one": "0-1",
    "hinge": "hinge",
    "squared_hinge": "squared hinge",
    "bce": "binary cross-entropy",
}


def picture(path: str | Path, p: float = 1 / 3, span: float = 4.0) -> None:
    """Draw what a recorded positive costs: plain, unbiased, and its convex surrogate.

    The unbiased hinge bends the wrong way at -1 and every unbiased margin loss falls without end;
    the surrogates do neither.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    s = np.linspace(-span, span, 801)
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(1, len(NAMES)), NAMES, strict=True):
        axes.plot(s, loss(name, 1, s), color="0.6", label="plain")
        axes.plot(s, unbiased(name, 1, s, p), color="tab:red", label="unbiased")
        axes.plot(s, surrogate(name, 1, s, p), color="tab:blue", ls="--", label="weight 2q - 1")
        axes.axhline(0.0, color="0.8", lw=0.8, zorder=0)
        axes.set_title(TITLES[name])
        axes.set_xlabel("score s")
        if name != "zero_one":
            axes.set_ylim(-10, 20)
    figure.axes[0].set_ylabel(f"loss of a recorded positive, p = {p:.2f}")
    figure.axes[-1].legend(frameon=False)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    picture(sys.argv[1])
