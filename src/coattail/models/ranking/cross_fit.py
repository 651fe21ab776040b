"""Calibrations judged on texts that they have not seen.

Validation texts are dealt to folds, and the probabilities of a fold come from a map fitted on the
others. What is then chosen by these probabilities has seen every fold. To choose for one fold
without having seen it, the probabilities of each other fold come from a map fitted without either
of the two. So there is a map for every fold and one for every pair of folds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.models.ranking.calibration import Calibration, Name, probabilities
from coattail.models.ranking.fits import Floats

Folds = NDArray[np.int64]


def deal(n: int, folds: int, seed: int) -> Folds:
    """The fold of each of n texts, (n,); which one depends on nothing else."""
    return np.random.default_rng(seed).permutation(n) % folds


@dataclass
class CrossFit:
    """One calibration, fitted without a fold or without two of them, each when first asked for."""

    name: Name
    topk: TopK
    hits: NDArray[np.bool_]  # (n, k)
    frequency: Floats  # (L,)
    evidence: Floats | None  # (n, k, e)
    fold: Folds  # (n,)
    _pairs: dict[tuple[int, int], Floats] = field(default_factory=dict)

    @cached_property
    def numbers(self) -> list[int]:
        return [int(number) for number in np.unique(self.fold)]

    @cached_property
    def eta(self) -> Floats:
        """Probabilities (n, k), each text's by a map that has not seen its fold."""
        out = np.zeros(self.topk.labels.shape)
        for number in self.numbers:
            rows = self.fold == number
            out[rows] = self._judged(rows, rows)
        return out

    def without(self, number: int) -> Floats:
        """The same for the texts outside a fold, by maps that have not seen that fold either.

        Rows of the fold itself are 0.
        """
        out = np.zeros(self.topk.labels.shape)
        for other in self.numbers:
            if other == number:
                continue
            pair = (min(number, other), max(number, other))
            either = np.isin(self.fold, pair)
            if pair not in self._pairs:
                self._pairs[pair] = self._judged(either, either)
            out[self.fold == other] = self._pairs[pair][self.fold[either] == other]
        return out

    def _judged(self, unseen: NDArray[np.bool_], rows: NDArray[np.bool_]) -> Floats:
        """Probabilities of ``rows`` by a map fitted on all texts that are not ``unseen``."""
        if self.name == "plain":
            return probabilities(self.topk.rows(rows))
        new, seen = (None if self.evidence is None else self.evidence[r] for r in (rows, ~unseen))
        map_ = Calibration(self.name)
        map_.fit(self.topk.rows(~unseen), self.hits[~unseen], self.frequency, seen)
        return map_(self.topk.rows(rows), self.frequency, new)


def together(parts: list[tuple[NDArray[np.bool_], TopK]]) -> TopK:
    """Rankings of some texts each as a ranking of all; every text stands in one of them."""
    first = parts[0][1]
    arrays = {}
    for one in fields(TopK):
        if isinstance(array := getattr(first, one.name), np.ndarray):
            arrays[one.name] = np.empty((len(parts[0][0]), *array.shape[1:]), array.dtype)
            for rows, part in parts:
                arrays[one.name][rows] = getattr(part, one.name)
    return TopK(**{one.name: getattr(first, one.name) for one in fields(TopK)} | arrays)
