"""A factorial: rows for every combination of some factors, each of them low or high.

What a factor does is the mean of the rows where it is high minus the mean of the others. How two
factors work together is half of what the one does where the other is high, minus half of what it
does where that is low; 0 if they add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from coattail.studies.study_params import StudyParams

JOINED = " x "


def rows(study: StudyParams) -> dict[str, frozenset[str]]:
    """Rows of the factorial, each with the factors that are high in it."""
    return {name: frozenset(r.high) for name, r in study.rows.items() if r.high is not None}


def effects(study: StudyParams) -> list[str]:
    """Every factor, then every two of them."""
    pairs = [JOINED.join(two) for two in combinations(study.factors, 2)]
    return [*study.factors, *pairs] if study.factors else []


def contrast(
    effect: str, high: Mapping[str, frozenset[str]], values: Mapping[str, Sequence[float] | NDArray]
) -> NDArray[np.float64]:
    """An effect, from the values of all rows, in every draw or for every seed."""
    signed = []
    for row, factors in high.items():
        low = sum(factor not in factors for factor in effect.split(JOINED))
        signed.append((-1) ** low * np.asarray(values[row], np.float64))
    return np.asarray(2 * np.mean(signed, axis=0))
