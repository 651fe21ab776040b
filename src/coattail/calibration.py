"""Scores of a ranking as probabilities: a fixed map for margins, or one fitted on validation.

All maps see a ranking only, (n, k) labels and scores, so any model's output will do:

    plain      probabilities as they are; margins by exp(-max(0, 1 - s)^2)
    platt      a sigmoid of the score
    isotonic   the best non-decreasing function of the score
    context    logistic regression on the score (a broken line), the label's frequency, the rank
               and the best score of the text, so that a rare label's 0.3 may mean another
               probability than a frequent label's 0.3
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from coattail.arrays import TopK, as_csr
from coattail.errors import DataError, ModelError

Name = Literal["plain", "platt", "isotonic", "context"]
Floats = NDArray[np.float64]

# Above margin 1 the map of the hinge is flat. This slope keeps labels there in order of margin; it
# is too small to outweigh any real difference between two labels' weights.
SLOPE = 1e-3
# A calibrated probability stays inside these, so that a product with weights keeps its order.
LOW, HIGH = 1e-9, 1 - 1e-6
# Ranks that a fit looks at: the top of a list decides, the far end is noise a thousand times over.
FIT_RANKS = 50


def hinge_probability(margins: NDArray) -> Floats:
    """``exp(-max(0, 1 - s)^2)`` with a slight slope above 1; strictly increasing, in [0, 1)."""
    s = np.asarray(margins, np.float64)
    above = np.maximum(s, 0)
    return (np.exp(-(np.maximum(0, 1 - s) ** 2)) + SLOPE * above / (1 + above)) / (1 + SLOPE)


def probabilities(topk: TopK) -> Floats:
    """Scores (n, k) as probabilities, 0 where there is no label."""
    scores = topk.scores.astype(np.float64)
    if topk.kind == "margin":
        scores = hinge_probability(scores)
    return np.where(topk.labels < 0, 0.0, np.clip(scores, 0, 1))


def true_places(topk: TopK, Y: sp.csr_matrix) -> NDArray[np.bool_]:
    """Which entries (n, k) of a ranking are true labels of their text."""
    Y = as_csr(Y, "Y")
    if topk.n != Y.shape[0]:
        raise DataError(f"the ranking has {topk.n} texts but Y has {Y.shape[0]}; rank this split")
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    true = (rows * Y.shape[1] + Y.indices)[Y.data != 0]  # ascending, for Y is canonical
    asked = np.arange(topk.n, dtype=np.int64)[:, None] * Y.shape[1] + topk.labels
    place = np.searchsorted(true, asked)
    found = np.append(true, -1)[place] == asked
    return found & (topk.labels >= 0)


class Calibration:
    """One of the maps above; ``fit`` on validation, then call it on any ranking."""

    def __init__(self, name: Name) -> None:
        self.name: Name = name
        self.state_: dict[str, Any] = {}

    def fit(self, topk: TopK, hits: NDArray[np.bool_], frequency: Floats) -> Calibration:
        """Learn from a ranking and which of its labels are true.

        Parameters
        ----------
        topk : TopK (n, k)
        hits : bool (n, k)
        frequency : float (L,)
            Training texts of every label; labels without one are left out of the fit.

        Returns
        -------
        self; without a single hit nothing can be learned and the map is ``plain``.
        """
        short = topk.head(min(topk.k, FIT_RANKS))
        use = short.labels >= 0
        use &= frequency[np.maximum(short.labels, 0)] > 0
        truth = hits[:, : short.k][use].astype(np.float64)
        if self.name == "plain" or not truth.any() or truth.all():
            self.name = "plain"
            return self
        z = _scale(short)[use]
        if self.name == "isotonic":
            self.state_ = _fit_isotonic(z, truth)
            return self
        ranks = np.broadcast_to(np.arange(1, short.k + 1), short.labels.shape)[use]
        if self.name == "context":
            self.state_ = _fit_isotonic(z, truth)
        features = self._features(short, frequency)[use]
        mean, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 1e-9, spread, 1)
        weights = _logistic((features - mean) / spread, truth, 1 / ranks)
        slopes = weights[1:] / spread
        self.state_["slopes"] = _round(slopes)
        self.state_["intercept"] = _round(weights[:1] - mean @ slopes)[0]
        return self

    def __call__(self, topk: TopK, frequency: Floats) -> Floats:
        """Probabilities (n, k), 0 where there is no label."""
        if self.name == "plain":
            return probabilities(topk)
        if self.name == "isotonic":
            z = _scale(topk)
            out = np.interp(z, self.state_["scores"], self.state_["values"])
            out = (out + SLOPE * expit(z)) / (1 + SLOPE)  # keeps the order on flat pieces
        else:
            logit = self._features(topk, frequency) @ np.asarray(self.state_["slopes"])
            out = expit(logit + self.state_["intercept"])
        return np.where(topk.labels < 0, 0.0, np.clip(out, LOW, HIGH))

    def _features(self, topk: TopK, frequency: Floats) -> Floats:
        """(n, k, features) of the logistic maps."""
        z = _scale(topk)
        if self.name == "platt":
            return z[:, :, None]
        u = np.log1p(frequency)[np.maximum(topk.labels, 0)]
        rank = np.broadcast_to(np.log(np.arange(1, topk.k + 1)), z.shape)
        best = np.broadcast_to(z[:, :1], z.shape)
        shape = np.interp(z, self.state_["scores"], self.state_["values"])
        shape = np.clip(shape, 1e-4, 1 - 1e-4)
        g = np.log(shape / (1 - shape))
        rare = [np.maximum(0, np.log1p(edge) - u) for edge in (3, 10, 50)]
        columns = [z, u, z * u, g, g * u, *rare, rank, rank * u, rank * g, best, best * u, best * g]
        return np.stack(columns, axis=-1)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.state_}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Calibration:
        state = dict(content)
        made = cls(state.pop("name"))
        wanted = {"platt": {"slopes", "intercept"}, "isotonic": {"scores", "values"}}
        wanted["context"] = wanted["platt"] | wanted["isotonic"]
        if set(state) != wanted.get(made.name, set()):
            raise ModelError(f"calibration {made.name!r} has parts {sorted(state)}; train it again")
        made.state_ = state
        return made


def _scale(topk: TopK) -> Floats:
    """Scores on a scale without ends: margins as they are, probabilities as log-odds."""
    scores = np.where(topk.labels < 0, 0, topk.scores).astype(np.float64)
    if topk.kind == "margin":
        return np.clip(scores, -10, 10)
    p = np.clip(scores, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(p / (1 - p)))


def _fit_isotonic(z: Floats, truth: Floats) -> dict[str, Any]:
    from scipy.optimize import isotonic_regression  # slow to import, and needed only here

    order = np.argsort(z, kind="stable")
    fitted = isotonic_regression(truth[order])
    edges = fitted.blocks
    sizes = np.diff(edges)
    middles = np.add.reduceat(z[order], edges[:-1]) / sizes
    return {"scores": _round(middles), "values": _round(fitted.x[edges[:-1]])}


def _logistic(features: Floats, truth: Floats, weight: Floats, ridge: float = 1.0) -> Floats:
    """Weighted logistic regression with an intercept (first entry, not penalised) by Newton."""
    F = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    penalty = np.full(F.shape[1], ridge)
    penalty[0] = 1e-6
    w = np.zeros(F.shape[1])

    def loss(w: Floats) -> float:
        logit = F @ w
        each = np.logaddexp(0, logit) - truth * logit
        return float(weight @ each + 0.5 * penalty @ w**2)

    now = loss(w)
    for _ in range(50):
        p = expit(F @ w)
        gradient = F.T @ (weight * (p - truth)) + penalty * w
        hessian = (F * (weight * p * (1 - p))[:, None]).T @ F + np.diag(penalty)
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        while (after := loss(w - size * step)) > now + 1e-12 * abs(now) and size > 1e-6:
            size /= 2
        w, now, gained = w - size * step, after, now - after
        if gained <= 1e-10 * abs(now):
            break
    return w


def _round(values: Floats) -> list[float]:
    """Seven digits: sums in another order (threads of the algebra library) give the same bytes."""
    return [float(f"{value:.6e}") for value in values]
