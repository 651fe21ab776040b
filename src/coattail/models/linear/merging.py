"""Taug's blocks on one scale: the scores of each through a map of its own, fitted on validation.

The blocks' classifiers were trained on different texts, so a score of 0.4 need not mean the same
probability in each. Validation texts were seen by no block. A text of them that is ranked itself
goes through maps fitted on the other folds, all other texts through maps fitted on every fold.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.models.ranking.calibration import Calibration, Name, true_places
from coattail.models.ranking.cross_fit import CrossFit, deal

MAP: Name = "platt"  # it rises strictly, so each block keeps its own order
FOLDS, SEED = 5, 0


def fitted(top: TopK, Y: sp.csr_matrix) -> tuple[Calibration, TopK]:
    """The map of a block from its ranking of validation texts, and that ranking out of fold."""
    hits, seen = true_places(top, Y), np.ones(Y.shape[1])
    folds = CrossFit(MAP, top, hits, seen, None, deal(top.n, FOLDS, SEED))
    return Calibration(MAP).fit(top, hits, seen), _with(top, folds.eta)


def mapped(map_: Calibration, top: TopK, n_labels: int) -> TopK:
    """A block's ranking with probabilities for scores."""
    return _with(top, map_(top, np.ones(n_labels)))


def _with(top: TopK, eta: NDArray[np.float64]) -> TopK:
    scores = np.where(top.labels < 0, -np.inf, eta).astype(np.float32)
    return replace(top, scores=scores, kind="probability")
