"""Floors under precision: does a loss against the base stay within what is allowed on new texts?

A loss measured on some texts is not the loss on others. So the texts are drawn many times with
replacement (a paired bootstrap: base and reranking on the same draws). A reranking clears the
floors if all its losses are within what is allowed in nearly all draws (``confidence``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GUARDED = ("p_at_1", "p_at_3", "p_at_5", "ndcg_at_5")
DEPTH = 5  # ranks that these metrics read
RESAMPLES = 1000
BLOCK = 100  # resamples drawn at a time: most that break a floor do so in the first block


def guarded(hits: Floats, positives: NDArray) -> Floats:
    """The metrics of GUARDED text by text, (n, 4), from hits (n, at least DEPTH) in {0, 1}."""
    discount = 1 / np.log2(np.arange(2, DEPTH + 2))
    ideal = np.concatenate([[1.0], np.cumsum(discount)])[np.minimum(positives, DEPTH)]
    upto = np.cumsum(hits[:, :DEPTH], axis=1)
    dcg = hits[:, :DEPTH] @ discount
    return np.stack([upto[:, 0], upto[:, 2] / 3, upto[:, 4] / 5, dcg / ideal], axis=1)


class Floors:
    """Whether losses hold on unseen texts.

    Parameters
    ----------
    allowed : points that may be lost, for some or all of GUARDED
    n : number of texts
    confidence : share of the draws in which all losses must be within what is allowed
    """

    def __init__(
        self, allowed: Mapping[str, float], n: int, confidence: float, seed: int = 0
    ) -> None:
        self.columns = [GUARDED.index(name) for name in allowed]
        self.allowed = np.array(list(allowed.values()), np.float64) / 100 + 1e-9
        self.n, self.confidence, self.seed = n, confidence, seed
        self._drawn: list[NDArray[np.uint8]] = []

    def clear(self, losses: Floats) -> bool:
        """Whether losses of all texts, (n, 4), are within what is allowed, surely enough."""
        broken, most = 0, (1 - self.confidence) * RESAMPLES + 1e-9
        for times in self._draws():
            broken += len(times) - self._held(losses, times)
            if broken > most:
                return False
        return True

    def share(self, losses: Floats) -> float:
        """Share of the draws in which all losses are within what is allowed."""
        return sum(self._held(losses, times) for times in self._draws()) / RESAMPLES

    def within(self, means: Floats) -> NDArray[np.bool_]:
        """Which mean losses, (..., 4), are within what is allowed, as they were measured."""
        return np.asarray((means[..., self.columns] <= self.allowed).all(axis=-1))

    def _held(self, losses: Floats, times: NDArray[np.uint8]) -> int:
        from coattail.kernels import hits as kernels

        sums = np.empty((len(times), len(self.columns)))
        kernels.resampled_sums(times, np.ascontiguousarray(losses[:, self.columns]), sums)
        return int((sums <= self.allowed * self.n).all(axis=1).sum())

    def _draws(self) -> Iterator[NDArray[np.uint8]]:
        """How often each text is drawn, (BLOCK, n) at a time; the same draws for all questions."""
        for number in range(RESAMPLES // BLOCK):
            if number == len(self._drawn):
                rng = np.random.default_rng([self.seed, number])
                drawn = (rng.integers(0, max(self.n, 1), self.n) for _ in range(BLOCK))
                times = [np.bincount(rows, minlength=self.n) for rows in drawn]
                self._drawn.append(np.array(times, np.uint8))
            yield self._drawn[number]
