"""Scores of a ranking as probabilities: a fixed map for margins, or one fitted on validation.

All maps see a ranking only, (n, k) labels and scores, so any model's output will do:

    plain      probabilities as they are; margins by exp(-max(0, 1 - s)^2)
    platt      a sigmoid of the score
    isotonic   the best non-decreasing function of the score
    context    logistic regression on the score (a broken line), the label's frequency, the rank
               and the best score of the text, so that a rare label's 0.3 may mean another
               probability than a frequent label's 0.3
    names      the same and how the label's name stands in the text (naming.EVIDENCE), each as a
               broken line, and products of any two
    boosted    small trees on the score, the frequency, the rank, the best score, the names and what
               every ranking behind this one says of the label (TopK.parts)

A fitted map keeps the mass: over the entries of its fit the probabilities sum to the hits. It may
be flat or make scores equal; whoever sorts by it keeps the order of the list that came.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from coattail.arrays import TopK, as_csr, hinge_probability
from coattail.errors import DataError, ModelError
from coattail.models.ranking.boosting import Boosted, boost
from coattail.models.ranking.fits import Floats, isotonic, logistic, rounded

Name = Literal["plain", "platt", "isotonic", "context", "names", "boosted"]
READS_NAMES: tuple[Name, ...] = ("names", "boosted")

# Above margin 1 the map of the hinge is flat. This slope keeps labels there in order of margin; it
# is too small to outweigh any real difference between two labels' weights.
SLOPE = 1e-3
# A calibrated probability stays inside these, so that its product with a weight is never 0.
LOW, HIGH = 1e-9, 1 - 1e-6
# Ranks that a fit looks at: the top of a list decides, the far end is noise a thousand times over.
FIT_RANKS = 50
# Maps that read names have many columns: they fit on fewer ranks and not on all of very many texts,
# and are computed for so many texts at once.
NAMES_RANKS, BOOSTED_RANKS, NAMES_TEXTS, BLOCK = 30, 40, 10_000, 1_000
# The lines of `names` break at these quantiles of the first ranks.
BREAKS, BREAK_RANKS = (0.1, 0.3, 0.5, 0.7, 0.9), 10


def rising_probability(margins: NDArray) -> Floats:
    """`hinge_probability` with a slight slope above 1: strictly increasing, in [0, 1)."""
    s = np.asarray(margins, np.float64)
    above = np.maximum(s, 0)
    return (hinge_probability(s) + SLOPE * above / (1 + above)) / (1 + SLOPE)


def probabilities(topk: TopK) -> Floats:
    """Probabilities (n, k) of the labels of a ranking; 0 where there is no label."""
    if topk.confidence is not None:
        return np.clip(topk.confidence.astype(np.float64), 0, 1)
    if topk.kind == "score":
        raise DataError(
            "the ranking has scores that promise an order alone, and no probabilities beside them; "
            "take a ranking with margins or probabilities"
        )
    return np.where(topk.labels < 0, 0.0, rising_probability(topk.scores))


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

    def fit(
        self,
        topk: TopK,
        hits: NDArray[np.bool_],
        frequency: Floats,
        evidence: Floats | None = None,
    ) -> Calibration:
        """Learn from a ranking and which of its labels are true.

        Parameters
        ----------
        topk : TopK (n, k)
        hits : bool (n, k)
        frequency : float (L,)
            Training texts of every label; labels without one are left out of the fit.
        evidence : float (n, k, e), for ``names`` and ``boosted``

        Returns
        -------
        self; without a single hit nothing can be learned and the map is ``plain``.
        """
        ranks_seen = {"names": NAMES_RANKS, "boosted": BOOSTED_RANKS}.get(self.name, FIT_RANKS)
        if self.name in READS_NAMES:
            rows = slice(None, None, -(-topk.n // NAMES_TEXTS) or 1)
            topk, hits = topk.rows(rows), hits[rows]
            evidence = self._wanted(evidence)[rows, :ranks_seen]
        short = topk.head(min(topk.k, ranks_seen))
        use = short.labels >= 0
        use &= frequency[np.maximum(short.labels, 0)] > 0
        truth = hits[:, : short.k][use].astype(np.float64)
        if self.name == "plain" or not truth.any() or truth.all():
            self.name = "plain"
            return self
        if self.name == "boosted":
            facts = self._boosted_facts(short, frequency, evidence)[use]
            self.state_ = boost(facts, truth).to_json() | {"facts": facts.shape[1]}
            return self
        z = _scale(short)[use]
        if self.name == "isotonic":
            self.state_ = _isotonic_state(z, truth)
            return self
        if self.name in ("context", "names"):
            self.state_ = _isotonic_state(z, truth)
        if self.name == "names":
            self.state_ |= _scales(self._facts(short, frequency, evidence), use)
        features = self._features(short, frequency, evidence)[use]
        mean, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 1e-9, spread, 1)
        weights = logistic((features - mean) / spread, truth)
        slopes = weights[1:] / spread
        self.state_["slopes"] = rounded(slopes)
        self.state_["intercept"] = rounded(weights[:1] - mean @ slopes)[0]
        return self

    def __call__(self, topk: TopK, frequency: Floats, evidence: Floats | None = None) -> Floats:
        """Probabilities (n, k), 0 where there is no label."""
        if self.name == "plain":
            return probabilities(topk)
        if self.name == "isotonic":
            z = _scale(topk)
            out = np.interp(z, self.state_["scores"], self.state_["values"])
        elif self.name == "boosted":
            out = expit(self._boosted(topk, frequency, evidence))
        else:
            out = expit(self._logits(topk, frequency, evidence) + self.state_["intercept"])
        return np.where(topk.labels < 0, 0.0, np.clip(out, LOW, HIGH))

    def _logits(self, topk: TopK, frequency: Floats, evidence: Floats | None) -> Floats:
        slopes, out = np.asarray(self.state_["slopes"]), np.empty(topk.labels.shape)
        for begin in range(0, topk.n, BLOCK):
            rows = slice(begin, begin + BLOCK)
            known = None if evidence is None else evidence[rows]
            out[rows] = self._features(topk.rows(rows), frequency, known) @ slopes
        return out

    def _boosted(self, topk: TopK, frequency: Floats, evidence: Floats | None) -> Floats:
        trees, out = Boosted.from_json(self.state_), np.empty(topk.labels.shape)
        for begin in range(0, topk.n, BLOCK):
            rows = slice(begin, begin + BLOCK)
            known = None if evidence is None else evidence[rows]
            facts = self._boosted_facts(topk.rows(rows), frequency, known)
            if facts.shape[2] != self.state_["facts"]:
                raise ModelError(
                    f"calibration boosted was fitted on {self.state_['facts']} facts of a label, "
                    f"but this ranking has {facts.shape[2]}; rank with the base it was fitted on"
                )
            out[rows] = trees(facts.reshape(-1, facts.shape[2])).reshape(out[rows].shape)
        return out

    def _boosted_facts(self, topk: TopK, frequency: Floats, evidence: Floats | None) -> Floats:
        """(n, k, 4 + m + e): score, frequency, rank, best score, parts, evidence."""
        parts = np.empty((*topk.labels.shape, 0)) if topk.parts is None else topk.parts
        facts = np.stack(_plain_facts(topk, frequency), axis=-1)
        return np.concatenate([facts, parts, self._wanted(evidence)], axis=-1)

    def _wanted(self, evidence: Floats | None) -> Floats:
        if evidence is None:
            raise DataError(
                f"calibration {self.name} reads the texts themselves; give them with the ranking"
            )
        return evidence

    def _features(self, topk: TopK, frequency: Floats, evidence: Floats | None) -> Floats:
        """(n, k, features) of the logistic maps."""
        if self.name == "platt":
            return _scale(topk)[:, :, None]
        if self.name == "names":
            facts = self._facts(topk, frequency, self._wanted(evidence))
            facts = (facts - self.state_["centre"]) / np.asarray(self.state_["spread"])
            return _crossed(facts, self.state_["breaks"])
        z, u, g, rank, best = np.moveaxis(self._facts(topk, frequency), -1, 0)
        rare = [np.maximum(0, np.log1p(edge) - u) for edge in (3, 10, 50)]
        columns = [z, u, z * u, g, g * u, *rare, rank, rank * u, rank * g, best, best * u, best * g]
        return np.stack(columns, axis=-1)

    def _facts(self, topk: TopK, frequency: Floats, evidence: Floats | None = None) -> Floats:
        """(n, k, 5 + e): score, frequency, calibrated score, rank, best score, evidence."""
        z, u, rank, best = _plain_facts(topk, frequency)
        shape = np.interp(z, self.state_["scores"], self.state_["values"])
        shape = np.clip(shape, 1e-4, 1 - 1e-4)
        g = np.log(shape / (1 - shape))
        facts = np.stack([z, u, g, rank, best], axis=-1)
        return facts if evidence is None else np.concatenate([facts, evidence], axis=-1)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.state_}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Calibration:
        state = dict(content)
        made = cls(state.pop("name"))
        wanted = {"platt": {"slopes", "intercept"}, "isotonic": {"scores", "values"}}
        wanted["context"] = wanted["platt"] | wanted["isotonic"]
        wanted["names"] = wanted["context"] | {"centre", "spread", "breaks"}
        wanted["boosted"] = {"start", "fact", "threshold", "value", "facts"}
        if set(state) != wanted.get(made.name, set()):
            raise ModelError(f"calibration {made.name!r} has parts {sorted(state)}; train it again")
        made.state_ = state
        return made


def _scale(topk: TopK) -> Floats:
    """Scores on an unbounded scale: margins as they are, probabilities as log-odds."""
    if topk.kind == "margin":
        return np.clip(np.where(topk.labels < 0, 0, topk.scores).astype(np.float64), -10, 10)
    p = np.clip(probabilities(topk), 1e-6, 1 - 1e-6)
    return np.asarray(np.log(p / (1 - p)))


def _plain_facts(topk: TopK, frequency: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """(n, k) each: score, logarithm of the frequency, of the rank, and the text's best score."""
    z = _scale(topk)
    u = np.log1p(frequency)[np.maximum(topk.labels, 0)]
    rank = np.broadcast_to(np.log(np.arange(1, topk.k + 1)), z.shape)
    return z, u, rank, np.broadcast_to(z[:, :1], z.shape)


def _scales(facts: Floats, use: NDArray[np.bool_]) -> dict[str, Any]:
    """Centre and spread of every fact, and where its broken line breaks on that scale."""
    centre, spread = facts[use].mean(axis=0), facts[use].std(axis=0)
    spread = np.where(spread > 1e-9, spread, 1)
    top = ((facts - centre) / spread)[:, :BREAK_RANKS][use[:, :BREAK_RANKS]]
    breaks = [sorted(set(rounded(np.quantile(column, BREAKS)))) for column in top.T]
    return {"centre": rounded(centre), "spread": rounded(spread), "breaks": breaks}


def _crossed(facts: Floats, breaks: list[list[float]]) -> Floats:
    """Every fact, its part above each break, and the product of any two facts."""
    count = facts.shape[-1]
    above = [
        np.maximum(0, facts[..., i] - edge) for i, edges in enumerate(breaks) for edge in edges
    ]
    products = [facts[..., i] * facts[..., j] for i in range(count) for j in range(i, count)]
    return np.concatenate([facts, np.stack([*above, *products], axis=-1)], axis=-1)


def _isotonic_state(z: Floats, truth: Floats) -> dict[str, Any]:
    scores, values = isotonic(z, truth)
    # Scores as they are: between two that are close the line may be steep.
    return {"scores": scores.tolist(), "values": rounded(values)}
