"""Gradient-boosted trees for a probability: each tree corrects the error of those before.

Facts are binned at quantiles, a tree of fixed depth is grown on gradient and hessian of the
logistic loss, and a part (``RATE``) of its leaves' Newton steps is added. Nothing is random, and a
single thread adds up in one order, so the same facts give the same trees. Such
steps stop a little short, so in the end all log-odds are shifted until the probabilities sum to the
truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from coattail.errors import ModelError
from coattail.kernels import boosted_trees as kernel
from coattail.models.ranking.fits import Floats, shift_to

TREES, DEPTH, RATE = 200, 4, 0.08
RIDGE, LEAST = 5.0, 3.0  # of a leaf's hessian: added to it, and the least it may hold
BINS = 64


@dataclass(frozen=True)
class Boosted:
    """Trees as arrays (trees, nodes); a row goes right where its fact is above the threshold."""

    start: float
    fact: NDArray[np.int64]  # (trees, 2^depth - 1)
    threshold: Floats  # (trees, 2^depth - 1)
    value: Floats  # (trees, 2^depth)

    def __call__(self, facts: Floats) -> Floats:
        """Log-odds of every row of facts (n, m)."""
        out = np.empty(len(facts))
        facts = np.ascontiguousarray(facts, np.float64)
        kernel.add_up(facts, self.fact, self.threshold, self.value, out)
        return out + self.start

    def to_json(self) -> dict[str, Any]:
        """Lists of numbers; a threshold that nothing exceeds is null, for JSON knows no inf."""
        finite = [[None if np.isinf(t) else t for t in row] for row in self.threshold.tolist()]
        arrays = {"fact": self.fact.tolist(), "threshold": finite, "value": self.value.tolist()}
        return {"start": self.start, **arrays}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Boosted:
        try:
            threshold = np.array(content["threshold"], np.float64)  # null becomes nan
            return cls(
                float(content["start"]),
                np.array(content["fact"], np.int64),
                np.where(np.isnan(threshold), np.inf, threshold),
                np.array(content["value"], np.float64),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"these are no boosted trees: {error}; train them again") from None


def boost(facts: Floats, truth: Floats) -> Boosted:
    """Trees for P(truth | facts).

    Parameters
    ----------
    facts : float (n, m)
    truth : float (n,)
        0 or 1, both of them present.
    """
    edges = [_edges(column) for column in facts.T]
    bins = np.empty(facts.shape, np.uint8)
    for j, cuts in enumerate(edges):
        bins[:, j] = np.searchsorted(cuts, facts[:, j], "left")  # bin b: at most cuts[b]
    mean = truth.mean()
    start = float(np.log(mean / (1 - mean)))
    logit = np.full(len(facts), start)
    inner = 2**DEPTH - 1
    fact, cut = np.zeros((TREES, inner), np.int64), np.zeros((TREES, inner), np.int64)
    value, leaf = np.zeros((TREES, inner + 1)), np.zeros(len(facts), np.int64)
    for t in range(TREES):
        p = expit(logit)
        kernel.grow(
            *(bins, BINS, p - truth, p * (1 - p)),
            DEPTH,
            RIDGE,
            LEAST,
            fact[t],
            cut[t],
            value[t],
            leaf,
        )
        value[t] *= RATE
        logit += value[t][leaf]
    table = np.full((facts.shape[1], BINS + 1), np.inf)
    for j, cuts in enumerate(edges):
        table[j, : len(cuts)] = cuts
    return Boosted(start + shift_to(logit, truth.sum()), fact, table[fact, cut], value)


def _edges(column: Floats) -> Floats:
    """At most BINS - 1 thresholds between values: quantiles, so bins hold equally many rows."""
    known = np.unique(column)
    if len(known) > BINS:
        known = np.unique(np.quantile(column, np.linspace(0, 1, BINS + 1)[1:], method="lower"))
    return known[:-1]
