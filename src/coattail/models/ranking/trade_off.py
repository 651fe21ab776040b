"""The trade-off between precision and finding rare labels, learned on validation.

Ranking by ``q_l * P(y_l | x)`` maximises PSP@k when the probabilities are calibrated, and ranking
by ``((1 - t) + t q_l) * P(y_l | x)`` maximises a mixture of precision and PSP, so ``t`` walks along
the best trade-off between them. `Validation.learn` calibrates, walks that path (with its own ``t``
for the first rank and for the rest) and takes the point with the largest goal (PSP over the first k
ranks) that keeps the floors under precision, also on texts that it has not seen (`floors`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from coattail.arrays import DEPTH, TopK, as_csr
from coattail.config import Params
from coattail.errors import DataError
from coattail.evaluation import metrics
from coattail.labels.frequency import counts as count_labels
from coattail.models.ranking.calibration import Name, probabilities, true_places
from coattail.models.ranking.cross_fit import CrossFit, deal
from coattail.models.ranking.fits import Floats
from coattail.models.ranking.floors import GUARDED, Floors
from coattail.models.ranking.walk import Lists, Places, TradeOff, mixed, with_first

Metric = Literal["p_at_1", "p_at_3", "p_at_5", "ndcg_at_5"]


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
    k: int = Field(5, ge=1, le=DEPTH, description="learned: depth k of the goal")
    goal: Literal["mean_psp", "psp"] = Field(
        "mean_psp",
        description="learned: maximise the mean of PSP@1 to PSP@k, or PSP@k alone, which does not "
        "care for the order within the first k",
    )
    allowed_loss: float | dict[Metric, float] = Field(
        1.0,
        description="learned: points that may be lost of each of P@1, P@3, P@5 and nDCG@5, or a "
        "mapping of p_at_1, p_at_3, p_at_5, ndcg_at_5 to points; one it leaves out has no floor",
    )
    floor_from: Literal["base", "best"] = Field(
        "base",
        description="learned: losses are counted from the base, or from the best that any "
        "reranking reaches on validation (careful: a calibration often gains first)",
    )
    confidence: float = Field(
        0.99,
        ge=0.5,
        lt=1.0,
        description="learned: share of the draws of validation texts (paired bootstrap) in which "
        "no floor may be broken; 0.5 asks for little more than the losses as they were measured",
    )
    steps: int = Field(
        20, ge=1, le=200, description="learned: intervals of each mixing weight, finest near 0"
    )
    folds: int = Field(
        5, ge=2, le=50, description="parts of validation; each is ranked by what the others taught"
    )
    mask_unseen: bool = Field(True, description="drop labels without a training text")
    refit: bool = Field(
        False,
        description="test and new texts are ranked by a base that has seen validation, too (its "
        "refit): a label's training texts are then those of both",
    )
    seed: int = Field(0, ge=0, description="assignment of validation texts to folds, and the draws")

    @model_validator(mode="before")
    @classmethod
    def _loss_at_k(cls, values: Any) -> Any:
        """``allowed_loss_at_k`` is a part of ``allowed_loss`` now; unset it said nothing."""
        if not isinstance(values, dict) or "allowed_loss_at_k" not in values:
            return values
        if values["allowed_loss_at_k"] is not None:
            raise ValueError(
                "allowed_loss_at_k is gone; a loss for each metric stands in allowed_loss, as in "
                "allowed_loss: {p_at_1: 1.0, p_at_5: 0.5}"
            )
        return {key: value for key, value in values.items() if key != "allowed_loss_at_k"}

    @field_validator("allowed_loss", mode="before")
    @classmethod
    def _points(cls, value: Any) -> Any:
        """One message for whatever is wrong, where a union of types would have one for each."""
        named = value if isinstance(value, dict) else {"all": value}
        for points in named.values():
            if isinstance(points, bool) or not isinstance(points, int | float):
                raise ValueError(f"wanted points, or {', '.join(GUARDED)} each with its points")
            if not 0 <= points <= 100:
                raise ValueError(f"{points} is no number of points; wanted 0 to 100")
        if isinstance(value, dict) and (unknown := [n for n in value if n not in GUARDED]):
            raise ValueError(f"no floor for {unknown[0]!r}; there is {', '.join(GUARDED)}")
        return value

    @property
    def losses(self) -> dict[str, float]:
        """Points that may be lost, by metric; a metric without a floor is not among them."""
        if isinstance(self.allowed_loss, dict):
            return {name: self.allowed_loss[name] for name in self.allowed_loss}
        return dict.fromkeys(GUARDED, self.allowed_loss)


@dataclass(frozen=True)
class Learned:
    """What `Validation.learn` found: the point chosen, the base, and the whole front."""

    chosen: TradeOff
    base: TradeOff  # the ranking as it came
    held: float  # share of the draws of texts in which the chosen point keeps all floors
    front: list[TradeOff]  # points that no other beats in both P@1 and the goal, by falling P@1
    powers: list[TradeOff]  # plain scores times q^a for comparison

    @property
    def keeps_base(self) -> bool:
        """Nothing better clears the floors: the ranking stays as it came."""
        return self.chosen == self.base


class Validation:
    """Validation texts to learn from: the base's lists, what is true, and maps that see neither.

    Frequencies are those of the training texts alone, and so are the propensities: with the
    validation texts counted in, a label's frequency would tell whether it occurs among them.

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
    train_inverse_propensity : float (L,)
        q of the training texts alone; where it is not given it is read off the other.
    """

    def __init__(
        self,
        topk: TopK,
        Y: sp.csr_matrix,
        counts: NDArray,
        inverse_propensity: Floats,
        params: RerankParams,
        evidence: Floats | None = None,
        train_inverse_propensity: Floats | None = None,
    ) -> None:
        self.topk, self.params, self.evidence = topk, params, evidence
        self.train = train_counts(counts, Y)
        q = train_inverse_propensity
        if q is None:
            q = _as_of(self.train, counts, inverse_propensity)
        self.q = np.asarray(q, np.float64)
        self.Y, self.hits = Y, true_places(topk, Y)
        self.frequency = self.train.astype(np.float64)
        self.fold = deal(topk.n, params.folds, params.seed)
        fitted: Name = "context" if params.strategy == "learned" else "plain"
        self.cross = CrossFit(
            *(params.calibration or fitted, topk, self.hits, self.frequency, evidence, self.fold)
        )

    def learn(self) -> Learned:
        """The best trade-off, judged by maps that have not seen the text."""
        if self.topk.n == 0:
            raise DataError("learned weights need validation texts, got none; use a fixed strategy")
        return TradeOffs(self._lists, self._maps(self.cross.eta), self.params).made()

    def learn_without(self, number: int) -> Learned:
        """The same without having seen a fold: what may be used to rank its texts."""
        rows = self.fold != number
        maps = self._maps(self.cross.without(number))
        lists = self._lists.rows(rows)
        return TradeOffs(lists, {name: eta[rows] for name, eta in maps.items()}, self.params).made()

    @cached_property
    def _lists(self) -> Lists:
        judged = metrics.judge(self.topk, self.Y, self.q)
        seen = (self.train > 0) | (not self.params.mask_unseen)
        return Lists.of(judged, self.hits, seen, self.params.k)

    def _maps(self, eta: Floats) -> dict[Name, Floats]:
        return {"plain": probabilities(self.topk), self.cross.name: eta}


class TradeOffs:
    """All trade-offs of some texts, and the one to take."""

    def __init__(self, lists: Lists, maps: dict[Name, Floats], params: RerankParams) -> None:
        self.lists, self.maps, self.params = lists, maps, params
        depths = np.full(params.k, 1 / params.k)
        self.aim = depths if params.goal == "mean_psp" else np.eye(params.k)[-1]
        self.base = lists.point("plain", (0.0, 0.0, 0.0), lists.base(), self.aim)
        # Rare labels weigh up to a hundred times as much: small weights make large differences.
        grid = np.linspace(0, 1, params.steps + 1) ** 2
        self._orders: dict[tuple[Name, float, float], Places] = {}
        pairs = [(first, rest) for first in grid.tolist() for rest in grid.tolist()]
        self.points = [
            self._point(name, first, rest, 1.0)
            for name in maps
            for first, rest in pairs
            if first <= rest
        ]
        self.powers = [self._point("plain", 1.0, 1.0, a) for a in np.linspace(0, 2, 21).tolist()]

    def made(self) -> Learned:
        """Largest goal above the floors; the base itself if nothing else clears them."""
        lists, points = self.lists, [self.base, *self.points, *self.powers]
        floors = Floors(self.params.losses, lists.n, self.params.confidence, self.params.seed)
        marks = self._marks(points)
        kept = np.array([p.guarded for p in points]) / 100
        lost = marks.sum(axis=0) / max(lists.n, 1) - kept
        able = [p for p, good in zip(points, floors.within(lost), strict=True) if good]
        able.sort(key=lambda p: (-round(p.goal, 9), -p.p_at_1, p.rest, p.first))
        chosen = next((p for p in able if floors.clear(marks - self._guarded(p))), self.base)
        held = floors.share(marks - self._guarded(chosen))
        return Learned(chosen, self.base, held, _front([*self.points, self.base]), self.powers)

    def _marks(self, points: list[TradeOff]) -> Floats:
        """From where losses are counted, text by text, (n, 4): the base, or the best reached."""
        marks = self._guarded(self.base)
        if self.params.floor_from == "best":
            for column, name in enumerate(GUARDED):
                best = max(points, key=lambda p: getattr(p, name))
                marks[:, column] = self._guarded(best)[:, column]
        return marks

    def _point(self, name: Name, first: float, rest: float, power: float) -> TradeOff:
        found = self._found(name, first, rest, power)
        return self.lists.point(name, (first, rest, power), found, self.aim)

    def _guarded(self, point: TradeOff) -> Floats:
        if point is self.base:
            return self.lists.guarded(self.lists.base())
        mixing = point.first, point.rest, point.power
        return self.lists.guarded(self._found(point.calibration, *mixing))

    def _found(self, name: Name, first: float, rest: float, power: float) -> Floats:
        places = self._order(name, rest, power)
        if first != rest and places.shape[1]:
            places = with_first(self._order(name, first, power)[:, 0], places)
        return self.lists.found(places)

    def _order(self, name: Name, t: float, power: float) -> Places:
        """The order by one weight, found once."""
        key = (name, t, power)
        if key not in self._orders:
            weights = mixed(self.lists.q, t, power)
            self._orders[key] = self.lists.order(self.maps[name], weights)
        return self._orders[key]


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
    """Interpolate q, a function of the count, at the counts of the training texts."""
    known, place = np.unique(np.asarray(counts), return_index=True)
    q = np.asarray(inverse_propensity, np.float64)[place]
    return np.interp(np.log1p(train), np.log1p(known), q)


def learned(content: dict[str, Any] | None) -> Learned | None:
    if content is None:
        return None
    chosen, base = TradeOff(**content["chosen"]), TradeOff(**content["base"])
    front, powers = ([TradeOff(**p) for p in content[name]] for name in ("front", "powers"))
    return Learned(chosen, base, float(content["held"]), front, powers)
