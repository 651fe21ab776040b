"""How good a ranking is: functions of (TopK, Y, weights): docs/reference/metrics.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import TopK, as_csr, parts
from coattail.errors import DataError
from coattail.labels.frequency import BANDS

Variant = Literal["a", "b"]
Weights = NDArray[np.float64]

KS = (1, 3, 5)
# Sums of something over the hits divided by a sum over the texts, in the order they are reported.
RANKED = ("p", "ndcg", "psp", "psndcg", "rp", "recall")
# What the two means of eq. 30 of the PW paper are over. At rank 1 PSnDCG is PSP and nDCG is P: the
# paper prints the figure once and counts it twice.
CHANGES = {
    "scored_change": ("psp_at_1", "psp_at_1", "psp_at_3", "psp_at_5", "psndcg_at_3", "psndcg_at_5"),
    "plain_change": ("p_at_1", "p_at_1", "p_at_3", "p_at_5", "ndcg_at_3", "ndcg_at_5"),
}
# The figures behind both, which networks log per epoch.
FOLLOWED = tuple(dict.fromkeys((*CHANGES["plain_change"], *CHANGES["scored_change"])))


class Ratio(NamedTuple):
    """A metric as two numbers per text; its value is the sum of one over the sum of the other."""

    numerator: NDArray[np.float64]
    denominator: NDArray[np.float64]

    @property
    def percent(self) -> float:
        return _percent(self.numerator.sum(), self.denominator.sum())


class Hits(NamedTuple):
    """The right predictions, text by text: never more than there are true labels."""

    row: NDArray[np.int64]
    rank: NDArray[np.int64]  # 0 for the best
    label: NDArray[np.int32]
    claim: NDArray[np.float32]  # see `claims`

    def where(self, keep: NDArray[np.bool_]) -> Hits:
        return Hits(self.row[keep], self.rank[keep], self.label[keep], self.claim[keep])


class LabelCounts(NamedTuple):
    """Per label: how often it was predicted, how often rightly, how often it is true."""

    predicted: NDArray[np.int64]
    hit: NDArray[np.int64]
    true: NDArray[np.int64]

    def of(self, labels: NDArray) -> LabelCounts:
        return LabelCounts(self.predicted[labels], self.hit[labels], self.true[labels])


@dataclass(frozen=True)
class Judged:
    """A ranking laid beside the truth; made by `judge`, asked for any metric at any k.

    Attributes
    ----------
    topk : TopK
        The ranking, (n, any width).
    claims : float32 (n, any width)
        What thresholds are held against, see `claims`.
    Y : CSR (n, L)
        The truth.
    hits : Hits
        Which predictions are true labels of their text.
    positives : int64 (n,)
        True labels per text.
    """

    topk: TopK
    claims: NDArray[np.float32]
    Y: sp.csr_matrix
    hits: Hits
    positives: NDArray[np.int64]
    inverse_propensity: Weights
    variant: Variant = "a"

    @property
    def n(self) -> int:
        return len(self.positives)

    @cached_property
    def true(self) -> NDArray[np.int64]:
        """True texts per label."""
        return np.bincount(self.Y.indices, minlength=self.Y.shape[1])

    @cached_property
    def _cuts(self) -> dict[int, AtK]:
        return {}

    def at(self, k: int) -> AtK:
        """What the ranked metrics need of the first k ranks, kept for the next question."""
        if k not in self._cuts:
            self._cuts[k] = AtK(self, k, self.hits.where(self.hits.rank < k))
        return self._cuts[k]

    def ratio(self, name: str, k: int) -> Ratio:
        """One of RANKED at k as numerator and denominator per text."""
        worth, denominator = self.at(k).worth(name)
        return Ratio(_floats(np.bincount(self.at(k).hits.row, worth, self.n)), denominator)

    def group_recall(self, k: int, members: NDArray[np.bool_]) -> Ratio:
        """Recall of some labels only: their hits over their true texts."""
        hits = self.hits.row[(self.hits.rank < k) & members[self.hits.label]]
        upto = np.concatenate([[0], np.cumsum(members[self.Y.indices])])
        true = upto[self.Y.indptr[1:]] - upto[self.Y.indptr[:-1]]
        return Ratio(_floats(np.bincount(hits, minlength=self.n)), _floats(true))

    def micro_f1(self, threshold: float) -> Ratio:
        """Twice the hits over predictions plus true labels, per text; NaN without a threshold."""
        if math.isnan(threshold):
            return Ratio(np.full(self.n, math.nan), _floats(self.positives))
        hits = np.bincount(self.hits.row[self.hits.claim >= threshold], minlength=self.n)
        asked = self._above(threshold).sum(axis=1) + self.positives
        return Ratio(_floats(2 * hits), _floats(asked))

    def label_counts(self, k: int) -> LabelCounts:
        """Per label within the first k ranks."""
        labels = self.topk.labels[:, :k]
        return self._counts(labels[labels >= 0], self.hits.rank < k)

    def label_counts_above(self, threshold: float) -> LabelCounts:
        """Per label among predictions that claim at least the threshold."""
        predicted = self.topk.labels[self._above(threshold)]
        return self._counts(predicted, self.hits.claim >= threshold)

    def _counts(self, predicted: NDArray[np.int32], hit: NDArray[np.bool_]) -> LabelCounts:
        size = self.Y.shape[1]
        hits = np.bincount(self.hits.label[hit], minlength=size)
        return LabelCounts(np.bincount(predicted, minlength=size), hits, self.true)

    def _above(self, threshold: float) -> NDArray[np.bool_]:
        return (self.claims >= threshold) & (self.topk.labels >= 0)


@dataclass(frozen=True)
class AtK:
    """The hits within the first k ranks and what they are worth in every ranked metric."""

    judged: Judged
    k: int
    hits: Hits

    @cached_property
    def _discount(self) -> NDArray[np.float64]:
        return _floats(1 / np.log2(np.arange(2, self.k + 2)))  # (k,)

    @cached_property
    def _reach(self) -> NDArray[np.int64]:
        return np.minimum(self.judged.positives, self.k)  # hits of a perfect ranking, (n,)

    @cached_property
    def _best_dcg(self) -> NDArray[np.float64]:
        """DCG of a perfect ranking, (n,); 1 for a text without labels, which never has a hit."""
        return np.concatenate([[1.0], np.cumsum(self._discount)])[self._reach]

    @cached_property
    def _ideal(self) -> NDArray[np.float64]:
        """The k largest 1/p among the true labels of each text, descending, (n, k)."""
        from coattail.kernels import hits as kernels

        ideal = np.empty((self.judged.n, self.k))
        p = parts(self.judged.Y)
        kernels.ideal_gains(p.indptr, p.indices, self.judged.inverse_propensity, ideal)
        return ideal

    def worth(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What each hit adds to the numerator, and the denominator of every text."""
        hits = self.hits
        match name:
            case "p":
                return np.full(len(hits.row), 1 / self.k), np.ones(self.judged.n)
            case "ndcg":
                return self._discount[hits.rank] / self._best_dcg[hits.row], np.ones(self.judged.n)
            case "rp":
                return 1 / self._reach[hits.row], _floats(self.judged.positives > 0)
            case "recall":
                return 1 / self.judged.positives[hits.row], _floats(self.judged.positives > 0)
            case "psp":
                return self.judged.inverse_propensity[hits.label], self._ideal.sum(axis=1)
            case "psndcg":
                gain = self.judged.inverse_propensity[hits.label] * self._discount[hits.rank]
                ideal = (self._ideal * self._discount).sum(axis=1)
                if self.judged.variant == "a":
                    return gain, ideal
                return gain / self._best_dcg[hits.row], ideal / self._best_dcg
        raise ValueError(f"no ranked metric {name!r}; there is {', '.join(RANKED)}")

    def shares(self, name: str, group: NDArray, n_groups: int) -> list[float]:
        """What each group of labels contributes to one of RANKED; the groups sum to the whole."""
        worth, denominator = self.worth(name)
        asked = denominator.sum()
        return [_percent(w, asked) for w in np.bincount(group[self.hits.label], worth, n_groups)]


def judge(
    topk: TopK, Y: sp.csr_matrix, inverse_propensity: Weights | None = None, variant: Variant = "a"
) -> Judged:
    """Lay a ranking beside the truth, once for all metrics.

    Parameters
    ----------
    topk : TopK
        n rows; labels smaller than the columns of Y, none twice in a row.
    Y : CSR (n, L)
        Stored entries that are not zero are true labels.
    inverse_propensity : float64 (L,), optional
        Weights 1/p_l of the propensity-scored metrics; ones when not given.
    variant : str
        Normalisation of PSnDCG, ``a`` or ``b``.
    """
    from coattail.kernels import hits as kernels

    Y = as_csr(Y, "Y")
    if not Y.data.all():
        Y = Y.copy()
        Y.eliminate_zeros()
    if topk.n != Y.shape[0]:
        raise DataError(f"the ranking has {topk.n} texts but Y has {Y.shape[0]}; rank this split")
    weights = np.ones(Y.shape[1]) if inverse_propensity is None else inverse_propensity
    if len(weights) != Y.shape[1]:
        raise DataError(f"{len(weights)} propensities for {Y.shape[1]} labels; run dvc repro")
    p = parts(Y)
    labels = np.ascontiguousarray(topk.labels, np.int32)
    hits, complaints = np.empty(labels.shape, np.bool_), np.empty(topk.n, np.uint8)
    kernels.judge(labels, p.indptr, p.indices, Y.shape[1], hits, complaints)
    if complaints.any():
        reasons = {
            kernels.OUT_OF_RANGE: f"names a label outside 0..{Y.shape[1] - 1}",
            kernels.PADDING_FIRST: "has a gap (-1) before a prediction",
            kernels.SAME_LABEL_TWICE: "names the same label twice",
        }
        bad = int(np.flatnonzero(complaints)[0])
        why = reasons[int(complaints[bad])]
        raise DataError(f"row {bad} of the ranking {why}: {labels[bad].tolist()[:20]}")
    row, rank = np.divmod(np.flatnonzero(hits), max(topk.k, 1))
    said = claims(topk)
    found = Hits(row, rank, labels[row, rank], said[row, rank])
    return Judged(topk, said, Y, found, np.diff(p.indptr), _floats(weights), variant)


def ranked(
    topk: TopK,
    Y: sp.csr_matrix,
    name: str,
    k: int,
    inverse_propensity: Weights | None = None,
    variant: Variant = "a",
) -> float:
    """One of RANKED at k: ``ranked(topk, Y, "ndcg", 5)``, ``ranked(topk, Y, "psp", 5, q)``."""
    return judge(topk.head(k), Y, inverse_propensity, variant).ratio(name, k).percent


def coverage(topk: TopK, Y: sp.csr_matrix, k: int) -> float:
    return _coverage(judge(topk.head(k), Y).label_counts(k))


def micro_f1(topk: TopK, Y: sp.csr_matrix, threshold: float) -> float:
    return judge(topk, Y).micro_f1(threshold).percent


def macro_f1(topk: TopK, Y: sp.csr_matrix, threshold: float) -> float:
    return _macro_f1(judge(topk, Y).label_counts_above(threshold))


def claims(topk: TopK) -> NDArray[np.float32]:
    """What a threshold is held against, (n, k): the stated probability, or else the score."""
    stated = topk.confidence
    return topk.scores if stated is None else stated


def fixed_threshold(topk: TopK) -> float:
    """Probability 0.5, or the separating hyperplane of margins; NaN for scores that only order."""
    if topk.confidence is not None:
        return 0.5
    return 0.0 if topk.kind == "margin" else math.nan


def choose_threshold(topk: TopK, Y: sp.csr_matrix) -> float:
    """The claim that gives the best micro-F1, of equals the highest; the fixed one without hits."""
    judged = judge(topk, Y)
    # Only the claim of a hit can be the best place to stop: going lower adds wrong predictions.
    tried, times = np.unique(judged.hits.claim, return_counts=True)
    if not len(tried) or math.isnan(fixed_threshold(topk)):
        return fixed_threshold(topk)
    hits = np.cumsum(times[::-1])[::-1]
    said = np.sort(judged.claims[topk.labels >= 0])
    predicted = len(said) - np.searchsorted(said, tried, "left")
    f1 = 2 * hits / (predicted + judged.positives.sum())
    return float(tried[np.flatnonzero(f1 == f1.max())[-1]])


def score(
    topk: TopK,
    Y: sp.csr_matrix,
    inverse_propensity: Weights,
    bands: NDArray[np.int8],
    ks: Sequence[int] = KS,
    threshold: float | None = None,
    variant: Variant = "a",
) -> dict[str, float]:
    """Every metric of docs/explanation/metrics.md in a fixed order, overall and per band.

    ``threshold`` is the one chosen on validation; without it there are no ``_tuned`` metrics.
    """
    return summarise(judge(topk, Y, inverse_propensity, variant), bands, ks, threshold)


def summarise(
    judged: Judged, bands: NDArray[np.int8], ks: Sequence[int] = KS, threshold: float | None = None
) -> dict[str, float]:
    """`score` of a ranking that is already judged."""
    everyone = np.zeros(judged.Y.shape[1], np.int8)
    tables = by_group(judged, bands, len(BANDS), ks, threshold)
    # Bands add up to the whole, except recall, which over all labels is a mean over texts.
    sums = RANKED[:-1] if judged.true.any() else ()
    result = {
        f"{m}_at_{k}": float(np.nansum([table[f"{m}_at_{k}"] for table in tables]))
        if m in sums
        else judged.ratio(m, k).percent
        for m in RANKED
        for k in ks
    }
    result = {**result, **_by_label(judged, everyone, 1, ks, threshold)[0], **result}
    for band, table in zip(BANDS, tables, strict=True):
        result |= {f"{band}_{name}": value for name, value in table.items()}
    return result


def names(ks: Sequence[int] = KS) -> list[str]:
    """What `score` calls its metrics, with a tuned threshold, and the two changes over a base."""
    ranked = [f"{m}_at_{k}" for m in (*RANKED, "coverage", "macro_f1") for k in ks]
    own = [*ranked, "micro_f1", "macro_f1", "micro_f1_tuned", "macro_f1_tuned"]
    return [*own, *(f"{band}_{name}" for band in BANDS for name in own), *CHANGES]


def by_group(
    judged: Judged, group: NDArray, n_groups: int, ks: Sequence[int], threshold: float | None = None
) -> list[dict[str, float]]:
    """The metrics of each group of labels (``group[label]``): bands or frequency bins.

    p, ndcg, psp, psndcg and rp are the group's contribution to the whole; recall, coverage and F1
    look at the group alone. A group without a true label in these texts has only NaN.
    """
    shares = {(m, k): judged.at(k).shares(m, group, n_groups) for m in RANKED[:-1] for k in ks}
    alone = _by_label(judged, group, n_groups, ks, threshold)
    filled = np.bincount(group, judged.true, n_groups) > 0
    tables = [
        {f"{m}_at_{k}": v[g] for (m, k), v in shares.items()} | alone[g] for g in range(n_groups)
    ]
    return [t if f else dict.fromkeys(t, math.nan) for t, f in zip(tables, filled, strict=True)]


_CUT = ("micro_f1", "macro_f1")  # metrics of the predictions above a threshold


def _by_label(
    judged: Judged, group: NDArray, n_groups: int, ks: Sequence[int], threshold: float | None
) -> list[dict[str, float]]:
    cuts = {"": fixed_threshold(judged.topk)}
    cuts |= {} if threshold is None else {"_tuned": threshold}
    at = {f"_at_{k}": judged.label_counts(k) for k in ks}
    above = {suffix: judged.label_counts_above(cut) for suffix, cut in cuts.items()}
    measures = (
        *(("recall", _recall, at), ("coverage", _coverage, at), ("macro_f1", _macro_f1, at)),
        *(("micro_f1", _micro_f1, above), ("macro_f1", _macro_f1, above)),
    )
    groups = [np.flatnonzero(group == g) for g in range(n_groups)]
    tables = [
        {m + suffix: f(counts.of(labels)) for m, f, t in measures for suffix, counts in t.items()}
        for labels in groups
    ]
    unknown = {m + suffix for suffix, cut in cuts.items() if math.isnan(cut) for m in _CUT}
    return [table | dict.fromkeys(unknown & set(table), math.nan) for table in tables]


def changes(values: Mapping[str, float], base: Mapping[str, float]) -> dict[str, float]:
    """The two means of relative change over a base, in percent (eq. 30 of the PW paper)."""
    return {name: mean_change(values, base, over) for name, over in CHANGES.items()}


def mean_change(
    values: Mapping[str, float], base: Mapping[str, float], names: Iterable[str]
) -> float:
    """Mean over metrics of the relative change against a base, in percent.

    Metrics that one of the two lacks, or in which the base has 0, are left out; NaN if none stays.
    """
    pairs = [(values.get(name, math.nan), base.get(name, math.nan)) for name in names]
    gains = [value / start - 1 for value, start in pairs if start > 0 and not math.isnan(value)]
    return 100 * sum(gains) / len(gains) if gains else math.nan


def _floats(values: NDArray) -> NDArray[np.float64]:
    return np.ascontiguousarray(values, np.float64)


def _percent(part: float, whole: float) -> float:
    return 100 * float(part) / float(whole) if whole > 0 else math.nan


def _recall(counts: LabelCounts) -> float:
    return _percent(counts.hit.sum(), counts.true.sum())


def _coverage(counts: LabelCounts) -> float:
    return _percent((counts.hit > 0).sum(), (counts.true > 0).sum())


def _micro_f1(counts: LabelCounts) -> float:
    return _percent(2 * counts.hit.sum(), (counts.predicted + counts.true).sum())


def _macro_f1(counts: LabelCounts) -> float:
    f1 = 2 * counts.hit / np.maximum(counts.predicted + counts.true, 1)  # no hit where none is true
    return _percent(f1.sum(), (counts.true > 0).sum())
