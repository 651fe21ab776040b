"""Figures of a row: what each column is on every text, and what resampling says of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.errors import ConfigError
from coattail.evaluation import bootstrap, metrics
from coattail.evaluation.metrics import CHANGES, FOLLOWED, Judged, Ratio
from coattail.evaluation.second_ranking import reorder_top5
from coattail.evaluation.statements import title
from coattail.labels.frequency import BANDS

Draws = dict[str, NDArray[np.float64]]

RANKED = re.compile(rf"(reordered_)?({'|'.join(metrics.RANKED)})_at_(\d+)")
BAND = re.compile(rf"({'|'.join(BANDS)})_recall_at_(\d+)")
RARE = re.compile(r"recall_at_(\d+)_of_(\d+)_to_(\d+)")
F1 = ("micro_f1", "micro_f1_tuned")
NO_MARGIN = {"margin": 0.0, "probability": math.exp(-1)}
"""The score of a label whose margin is 0, by kind of ranking."""
NAMES = {"scored_change": "scored %", "plain_change": "plain %"}
CONFIDENCE = 0.95
SEED = 0


class Figure(NamedTuple):
    """Mean over seeds, their standard deviation, and the interval over texts and seeds."""

    value: float
    spread: float
    low: float
    high: float


def heading(metric: str) -> str:
    """A column as readers see it."""
    if metric.startswith("reordered_"):
        return f"{title(metric.removeprefix('reordered_'))} reordered"
    return NAMES.get(metric) or title(metric)


def check(columns: Sequence[str]) -> list[str]:
    """Columns that are no figure."""
    known = (RANKED, BAND, RARE)
    return [
        f"columns: {name!r} is no figure of a study; there is {{p, ndcg, psp, psndcg, rp, recall}}"
        "_at_K, reordered_..., {head, torso, tail}_recall_at_K, recall_at_K_of_A_to_B (labels with "
        f"A to B training texts), {', '.join((*F1, *CHANGES))}"
        for name in columns
        if name not in (*F1, *CHANGES) and not any(one.fullmatch(name) for one in known)
    ]


@dataclass(frozen=True)
class RowJudge:
    """Test texts and labels, and what the propensities make of them."""

    features: Features

    def ratios(self, valid: TopK, test: TopK, columns: Sequence[str]) -> dict[str, Ratio]:
        """Numerator and denominator per text of every column, and of what changes are made of."""
        features = self.features
        Y, q = features.Y("test"), features.inverse_propensity
        judged = metrics.judge(test.validate(Y.shape[1]), Y, q)
        wanted = [name for name in columns if name not in CHANGES]
        reordered = judged
        if any(name.startswith("reordered_") for name in wanted):
            reordered = metrics.judge(reorder_top5(test, q, NO_MARGIN.get(test.kind, 0.0)), Y, q)
        threshold = math.nan
        if "micro_f1_tuned" in wanted:
            threshold = metrics.choose_threshold(valid, features.Y("valid"))
        both = {"": judged, "reordered_": reordered}
        return {
            name: self._ratio(name, both, threshold) for name in dict.fromkeys((*wanted, *FOLLOWED))
        }

    def _ratio(self, name: str, judged: Mapping[str, Judged], threshold: float) -> Ratio:
        plain = judged[""]
        if name in F1:
            fixed = metrics.fixed_threshold(plain.topk)
            return plain.micro_f1(fixed if name == "micro_f1" else threshold)
        if found := RANKED.fullmatch(name):
            return judged[found[1] or ""].ratio(found[2], int(found[3]))
        if found := BAND.fullmatch(name):
            return plain.group_recall(int(found[2]), self.features.bands == BANDS.index(found[1]))
        if found := RARE.fullmatch(name):
            counts = self.features.counts
            members = (counts >= int(found[2])) & (counts <= int(found[3]))
            return plain.group_recall(int(found[1]), members)
        raise ConfigError(check([name])[0])


def draws(ratios: Mapping[str, Ratio], resamples: int) -> Draws:
    """Each figure on resampled texts, its value on the texts themselves put in front."""
    found = bootstrap.resample(ratios, resamples, SEED)
    return {name: np.append(ratios[name].percent, found[name]) for name in ratios}


def over_seeds(seeds: Sequence[Draws], resamples: int) -> tuple[Draws, dict[str, list[float]]]:
    """Figures over texts and seeds, and each seed's own value.

    Every resample draws texts and seeds, the same ones for all rows, so differences are paired.
    """
    rng = np.random.default_rng((SEED, 2))
    picked = rng.integers(0, len(seeds), (resamples, len(seeds)))
    means: Draws = {}
    for name in seeds[0]:
        table = np.stack([one[name] for one in seeds])  # (seeds, 1 + resamples)
        rows = np.arange(1, resamples + 1)[:, None]
        means[name] = np.append(table[:, 0].mean(), table[picked, rows].mean(axis=1))
    return means, {name: [float(one[name][0]) for one in seeds] for name in seeds[0]}


def changes(row: Draws, base: Draws) -> Draws:
    """The two means of eq. 30 against a base, in every draw."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            name: 100 * np.mean([row[m] / base[m] - 1 for m in over], axis=0)
            for name, over in CHANGES.items()
        }


def figure(values: NDArray[np.float64], seeds: Sequence[float]) -> Figure:
    """What is shown of one figure or difference."""
    low, high = bootstrap.interval(values[1:], CONFIDENCE)
    spread = float(np.std(seeds, ddof=1)) if len(seeds) > 1 else 0.0
    return Figure(float(values[0]), spread, low, high)
