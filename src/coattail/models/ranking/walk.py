"""Rankings of validation texts by many weights, and the metrics of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.evaluation import metrics
from coattail.models.ranking.calibration import Name
from coattail.models.ranking.fits import Floats
from coattail.models.ranking.floors import DEPTH, guarded

Places = NDArray[np.intp]


@dataclass(frozen=True)
class TradeOff:
    """One trade-off, measured on validation: labels weigh ``(1 - t) + t q^power``."""

    calibration: Name
    first: float  # t of the first rank
    rest: float  # t of all other ranks
    power: float
    p_at_1: float
    p_at_3: float
    p_at_5: float
    ndcg_at_5: float
    psp_at_1: float
    psp_at_k: float
    goal: float  # PSP@k, or the mean of PSP@1 to PSP@k

    @property
    def guarded(self) -> tuple[float, ...]:
        """The metrics that floors guard, in percent."""
        return self.p_at_1, self.p_at_3, self.p_at_5, self.ndcg_at_5


def mixed(q: Floats, t: float, power: float = 1.0) -> NDArray[np.float32]:
    """Weight of every label, ``(1 - t) + t q^power``."""
    return ((1 - t) + t * q**power).astype(np.float32)


@dataclass(frozen=True)
class Lists:
    """A base's lists of validation texts and the truth; weights are those of training texts.

    Attributes
    ----------
    topk : TopK (n, list)
    hits : bool (n, list)
        Which entries are true.
    q : float (L,)
        Inverse propensities of the training texts.
    seen : bool (L,)
        Labels that a reranking may list.
    positives : int (n,)
        True labels per text.
    ideal : float (n, k)
        The largest sum of q that the first 1, 2, ... k ranks can hold.
    """

    topk: TopK
    hits: NDArray[np.bool_]
    q: Floats
    seen: NDArray[np.bool_]
    positives: NDArray[np.int64]
    ideal: Floats

    @staticmethod
    def of(judged: metrics.Judged, hits: NDArray[np.bool_], seen: NDArray, k: int) -> Lists:
        ideal = np.stack([judged.ratio("psp", j).denominator for j in range(1, k + 1)], axis=1)
        return Lists(judged.topk, hits, judged.inverse_propensity, seen, judged.positives, ideal)

    def rows(self, rows: NDArray[np.bool_]) -> Lists:
        """The same of some of the texts."""
        positives, ideal = self.positives[rows], self.ideal[rows]
        return Lists(self.topk.rows(rows), self.hits[rows], self.q, self.seen, positives, ideal)

    @property
    def n(self) -> int:
        return self.topk.n

    @cached_property
    def depth(self) -> int:
        return max(self.ideal.shape[1], DEPTH)

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        return (self.topk.labels >= 0) & self.seen[np.maximum(self.topk.labels, 0)]

    @cached_property
    def _gains(self) -> Floats:
        """q of every entry that is true, else 0; (n, list)."""
        return np.where(self.hits, self.q[np.maximum(self.topk.labels, 0)], 0.0)

    @cached_property
    def _masked_gains(self) -> Floats:
        return np.where(self.allowed, self._gains, 0.0)

    def order(self, eta: Floats, weights: NDArray[np.float32]) -> Places:
        """Places of the best ``depth + 1`` entries by eta times weight, as a reranker sorts them.

        Equal products keep the order of the list that came, also where the cut falls among them.
        """
        score = np.where(self.allowed, eta * weights[np.maximum(self.topk.labels, 0)], -1.0)
        keep = min(self.depth + 1, score.shape[1])
        if keep == 0 or not len(score):
            return np.zeros((len(score), keep), np.intp)
        last = np.partition(score, -keep, axis=1)[:, -keep, None]
        above, equal = score > last, score == last
        left = keep - above.sum(axis=1, keepdims=True)
        taken = above | (equal & (np.cumsum(equal, axis=1) <= left))
        some = np.nonzero(taken)[1].reshape(len(score), keep)
        best = np.argsort(-np.take_along_axis(score, some, 1), axis=1, kind="stable")
        return np.take_along_axis(some, best, 1)

    def found(self, places: Places, masked: bool = True) -> Floats:
        """q of the hits at the first ``depth`` ranks, (n, depth); 0 elsewhere."""
        gains = self._masked_gains if masked else self._gains
        top = np.take_along_axis(gains, places[:, : self.depth], 1)
        return np.pad(top, ((0, 0), (0, self.depth - top.shape[1])))

    def base(self) -> Floats:
        """`found` for the base's own order."""
        ranks = np.arange(min(self.depth, self.topk.k))
        return self.found(np.tile(ranks, (self.n, 1)), masked=False)

    def guarded(self, found: Floats) -> Floats:
        """The metrics that floors guard, text by text, (n, 4)."""
        return guarded((found > 0).astype(np.float64), self.positives)

    def point(
        self,
        name: Name,
        mixing: tuple[float, float, float],
        found: Floats,
        aim: Floats,
    ) -> TradeOff:
        """Metrics of lists with these hits; ``mixing`` is t of rank one, t of the rest, power."""
        k, n = self.ideal.shape[1], max(self.n, 1)
        ideal = self.ideal.sum(axis=0)
        gained = np.cumsum(found.sum(axis=0))[:k]
        psp = 100 * np.divide(gained, ideal, out=np.zeros(k), where=ideal > 0)
        p1, p3, p5, ndcg = (100 * self.guarded(found).sum(axis=0) / n).tolist()
        worth = float(psp[0]), float(psp[-1]), float(psp @ aim)
        return TradeOff(name, *mixing, p1, p3, p5, ndcg, *worth)


def with_first(first: Places, order: Places) -> Places:
    """``first`` at rank one, then ``order`` without it; (n,), (n, m) -> (n, m)."""
    own = order == first[:, None]
    # If ``first`` is not among them, the last one is dropped.
    own[:, -1] |= ~own.any(axis=1)
    rest = order[~own].reshape(len(order), order.shape[1] - 1)
    return np.concatenate([first[:, None], rest], axis=1)
