"""The trade-off between precision and finding rare labels, learned on validation.

Ranking by ``q_l * P(y_l | x)`` maximises PSP@k when the probabilities are calibrated, and ranking
by ``((1 - t) + t q_l) * P(y_l | x)`` maximises a mixture of precision and PSP, so ``t`` walks along
the best trade-off between them. `learn` calibrates, walks that path (with its own ``t`` for the
first rank, on which the floor lies, and for the rest) and takes the point with the largest goal
(PSP over the first k ranks) whose P@1 is above the floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import Field

from coattail.arrays import TopK, as_csr
from coattail.config import Params
from coattail.errors import DataError
from coattail.evaluation import metrics
from coattail.labels.frequency import counts as count_labels
from coattail.models.ranking.calibration import (
    Calibration,
    Floats,
    Name,
    probabilities,
    true_places,
)


class RerankParams(Params):
    """A variant of the section ``rerank``."""

    base: str = Field(description="candidate whose ranking is sorted again")
    strategy: Literal[
        "propensity", "imbalance", "frequency", "frequency_plus", "power", "learned"
    ] = Field(
        "propensity",
        description="weight of a label: q, 1 + ln(max n / n), 1/n, 1 + 1/n, q^power, or chosen on "
        "validation",
    )
    power: float = Field(0.5, ge=0.0, le=4.0, description="exponent of q (strategy power)")
    calibration: Name | None = Field(
        None,
        description="plain, platt, isotonic, context, names (which reads the names of labels and "
        "the texts) or boosted (the same and what the candidates behind an ensemble say); null: "
        "context if learned, else plain",
    )
    k: int = Field(5, ge=1, le=100, description="learned: depth k of the goal")
    goal: Literal["mean_psp", "psp"] = Field(
        "mean_psp",
        description="learned: maximise the mean of PSP@1 to PSP@k, or PSP@k alone, which does not "
        "care for the order within the first k",
    )
    allowed_loss: float = Field(
        1.0, ge=0.0, le=100.0, description="learned: points of P@1 that may be lost to the base"
    )
    floor_from: Literal["base", "best"] = Field(
        "base",
        description="learned: the loss is counted from the base's P@1, or from the best P@1 that "
        "any reranking reaches on validation (careful: a calibration often gains first)",
    )
    allowed_loss_at_k: float | None = Field(
        None, ge=0.0, le=100.0, description="learned: points of P@k that may be lost; null: any"
    )
    steps: int = Field(20, ge=1, le=200, description="learned: intervals of each mixing weight")
    folds: int = Field(5, ge=2, le=50, description="learned: parts of validation for cross-fitting")
    mask_unseen: bool = Field(True, description="drop labels without a training text")
    refit: bool = Field(
        False,
        description="test and new texts are ranked by a base that has seen validation, too (its "
        "refit): a label's training texts are then those of both",
    )
    seed: int = Field(0, ge=0, description="learned: assignment of validation texts to folds")


@dataclass(frozen=True)
class TradeOff:
    """One trade-off, measured on validation: labels weigh ``(1 - t) + t q^power``."""

    calibration: Name
    first: float  # t of the first rank
    rest: float  # t of all other ranks
    power: float
    p_at_1: float
    p_at_k: float
    psp_at_1: float
    psp_at_k: float
    goal: float  # PSP@k, or the mean of PSP@1 to PSP@k


@dataclass(frozen=True)
class Learned:
    """What `learn` found: the point chosen, the base, and the whole front."""

    chosen: TradeOff
    base: TradeOff  # the ranking as it came
    front: list[TradeOff]  # points that no other beats in both P@1 and the goal, by falling P@1
    powers: list[TradeOff]  # plain scores times q^a for comparison


def learn(
    topk: TopK,
    Y: sp.csr_matrix,
    counts: NDArray,
    inverse_propensity: Floats,
    params: RerankParams,
    evidence: Floats | None = None,
) -> Learned:
    """Choose calibration and weights on validation texts.

    Every text is scored by a calibration fitted on the other folds. Frequencies are those of the
    training texts alone, and so are the propensities here: with the validation texts counted in, a
    label's frequency would tell whether it occurs among them.

    Parameters
    ----------
    topk : TopK (n, list)
        The base's ranking of the validation texts.
    Y : csr (n, L)
        Their labels.
    counts : int (L,)
        Texts per label in train and validation together.
    inverse_propensity : float (L,)
        q of the same counts.
    evidence : float (n, list, e)
        What the names of labels say, for calibrations that read them.
    """
    if topk.n == 0:
        raise DataError("learned weights need validation texts, got none; use a fixed strategy")
    train = train_counts(counts, Y)
    q = _as_of(train, counts, inverse_propensity)
    judged = metrics.judge(topk, Y, q)
    hits = true_places(topk, Y)
    truth = _TrueLabels(topk, hits, judged, params, train if params.mask_unseen else None)
    names: list[Name] = ["plain"]
    if (fitted := params.calibration or "context") != "plain":
        names.append(fitted)
    grid = np.linspace(0, 1, params.steps + 1)
    points: list[TradeOff] = []
    for name in names:
        eta = probabilities(topk)
        if name != "plain":
            eta = _cross_fit(name, topk, hits, train, params, evidence)
        points += truth.walk(name, eta, grid)
    powers = [truth.power(probabilities(topk), a) for a in np.linspace(0, 2, 21)]
    chosen = _best([*points, *powers, truth.base], truth.base, params)
    return Learned(chosen, truth.base, _front([*points, truth.base]), powers)


class _TrueLabels:
    """Validation texts ready to score many rankings of the same lists."""

    def __init__(
        self,
        topk: TopK,
        hits: NDArray[np.bool_],
        judged: metrics.Judged,
        params: RerankParams,
        train: NDArray[np.int64] | None,
    ) -> None:
        labels = np.maximum(topk.labels, 0)
        self.k = params.k
        self.hits = hits.astype(np.float64)
        self.q = judged.inverse_propensity[labels]
        self.allowed = topk.labels >= 0
        if train is not None:
            self.allowed &= train[labels] > 0
        depths = range(1, self.k + 1)
        self.ideal = np.array([judged.ratio("psp", j).denominator.sum() for j in depths])
        self.aim = np.full(self.k, 1 / self.k) if params.goal == "mean_psp" else np.eye(self.k)[-1]
        # The base needs no sorting: its lists are best first already.
        ranks = np.tile(np.arange(min(self.k, topk.k)), (topk.n, 1))
        self.base = self._point("plain", 0.0, 0.0, 0.0, ranks)

    def walk(self, name: Name, eta: Floats, grid: Floats) -> list[TradeOff]:
        """All pairs of mixing weights; each weight's order is found once."""
        orders = [self._order(eta * ((1 - t) + t * self.q)) for t in grid]
        return [
            self._point(name, float(first), float(rest), 1.0, _with_first(top[:, 0], other, self.k))
            for first, top in zip(grid, orders, strict=True)
            for rest, other in zip(grid, orders, strict=True)
            if first <= rest
        ]

    def power(self, eta: Floats, a: float) -> TradeOff:
        return self._point("plain", 1.0, 1.0, float(a), self._order(eta * self.q**a)[:, : self.k])

    def _order(self, scores: Floats) -> NDArray[np.intp]:
        """Places of the best k + 1 entries, best first, ties to the earlier place."""
        scores = np.where(self.allowed, scores, -1.0)
        keep = min(self.k + 1, scores.shape[1])
        some = np.sort(np.argpartition(-scores, keep - 1, axis=1)[:, :keep], axis=1)
        order = np.argsort(-np.take_along_axis(scores, some, 1), axis=1, kind="stable")
        return np.take_along_axis(some, order, 1)

    def _point(
        self, name: Name, first: float, rest: float, power: float, places: NDArray
    ) -> TradeOff:
        hits = np.take_along_axis(self.hits, places, 1).sum(axis=0)  # per rank
        gains = (
            np.take_along_axis(self.hits, places, 1) * np.take_along_axis(self.q, places, 1)
        ).sum(axis=0)
        # A list shorter than k gains nothing at the ranks it lacks.
        gained = np.cumsum(np.pad(gains, (0, self.k - len(gains))))
        psp = 100 * np.divide(gained, self.ideal, out=np.zeros(self.k), where=self.ideal > 0)
        n = max(len(places), 1)
        return TradeOff(
            *(name, first, rest, power),
            p_at_1=100 * float(hits[0]) / n,
            p_at_k=100 * float(hits.sum()) / (n * self.k),
            psp_at_1=float(psp[0]),
            psp_at_k=float(psp[-1]),
            goal=float(psp @ self.aim),
        )


def _with_first(first: NDArray, order: NDArray, k: int) -> NDArray:
    """``first`` at rank one, then ``order`` without it; (n,), (n, k + 1) -> (n, k)."""
    own = order == first[:, None]
    # Where first is not among them at all, the last of the k + 1 gives way.
    own[:, -1] |= ~own.any(axis=1)
    rest = order[~own].reshape(len(order), -1)
    return np.concatenate([first[:, None], rest], axis=1)[:, :k]


def _cross_fit(
    name: Name,
    topk: TopK,
    hits: NDArray[np.bool_],
    train: NDArray,
    params: RerankParams,
    evidence: Floats | None,
) -> Floats:
    """Probabilities (n, list), each text's by a calibration that has not seen it."""
    frequency = train.astype(np.float64)
    fold = np.random.default_rng(params.seed).permutation(topk.n) % params.folds
    eta, map_ = np.zeros(topk.labels.shape), None
    for number in range(params.folds):
        out, rest = fold == number, fold != number
        seen, new = (None if evidence is None else evidence[part] for part in (rest, out))
        map_ = Calibration(name).fit(topk.rows(rest), hits[rest], frequency, seen, map_)
        eta[out] = map_(topk.rows(out), frequency, new)
    return eta


def _best(points: list[TradeOff], base: TradeOff, params: RerankParams) -> TradeOff:
    """Largest goal above the floors; the base itself if nothing else clears them."""
    top = max(p.p_at_1 for p in points) if params.floor_from == "best" else base.p_at_1
    floor = top - params.allowed_loss - 1e-9
    at_k = -np.inf
    if params.allowed_loss_at_k is not None:
        at_k = base.p_at_k - params.allowed_loss_at_k - 1e-9
    able = [p for p in points if p.p_at_1 >= floor and p.p_at_k >= at_k]
    return max(able, key=lambda p: (round(p.goal, 9), p.p_at_1, -p.rest, -p.first))


def _front(points: list[TradeOff]) -> list[TradeOff]:
    """Points that no other equals or beats in both P@1 and the goal, by falling P@1."""
    front: list[TradeOff] = []
    for point in sorted(points, key=lambda p: (-p.p_at_1, -p.goal, p.rest, p.first)):
        if not front or point.goal > front[-1].goal:
            front.append(point)
    return front


def train_counts(counts: NDArray, Y: sp.csr_matrix) -> NDArray[np.int64]:
    """Training texts per label: all counted texts without the validation texts."""
    counts = np.asarray(counts, np.int64)
    if len(counts) != Y.shape[1]:
        raise DataError(f"{len(counts)} counts for {Y.shape[1]} labels; run dvc repro preprocess")
    train = counts - count_labels(as_csr(Y, "Y"))
    if (train < 0).any():
        label = int(np.flatnonzero(train < 0)[0])
        raise DataError(
            f"label {label} has {counts[label]} texts in counts but more in validation; "
            "wanted counts over train and validation together"
        )
    return train


def _as_of(train: NDArray, counts: NDArray, inverse_propensity: Floats) -> Floats:
    """q as a function of the count, read off all labels, at the counts of the training texts."""
    known, place = np.unique(np.asarray(counts), return_index=True)
    q = np.asarray(inverse_propensity, np.float64)[place]
    return np.interp(np.log1p(train), np.log1p(known), q)


def learned(content: dict[str, Any] | None) -> Learned | None:
    if content is None:
        return None
    chosen, base = TradeOff(**content["chosen"]), TradeOff(**content["base"])
    front, powers = ([TradeOff(**p) for p in content[name]] for name in ("front", "powers"))
    return Learned(chosen, base, front, powers)
