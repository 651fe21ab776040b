"""The evaluation of PW-DiSMEC's code, which its paper does not mention: PSP on a second ranking.

Precision and nDCG are read off the ranking by margin, propensity-scored metrics off another one:
the same first labels, rare ones moved up. Figures with it compare with that paper's tables, figures
without it with everybody else's (`evaluate.second_ranking` of params.yaml, off by default).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.evaluation.metrics import claims


def reorder_top5(
    topk: TopK, inverse_propensity: NDArray[np.float64], above: float = 0.0, k: int = 5
) -> TopK:
    """The first k labels of every text in the order that PW-DiSMEC's evaluation gives them.

    Ranks are filled one by one. The next label is the rarest (largest inverse propensity, ties to
    the better score) among those left that claim more than ``above``, and the best left.

    Parameters
    ----------
    topk : TopK (n, any width)
    inverse_propensity : float64 (L,)
    above : the margin (or probability) that stands for a margin of 0, see `metrics.claims`
    k : how many labels are ordered anew; the others are dropped

    Returns
    -------
    TopK (n, k) of kind score; a score is minus the rank.
    """
    top = topk.head(k)
    said = claims(top)
    q = np.append(inverse_propensity, -np.inf)[top.labels]  # padding (-1) reads the last entry
    labels = np.full((top.n, k), -1, np.int32)
    left = top.labels >= 0
    rows = np.arange(top.n)
    for rank in range(k):
        allowed = left & (said > above)
        best_left = np.argmax(left, axis=1)
        allowed[rows, best_left] = left[rows, best_left]
        chosen = np.argmax(np.where(allowed, q, -np.inf), axis=1)  # ties: the first, so the better
        found = allowed[rows, chosen]
        labels[found, rank] = top.labels[found, chosen[found]]
        left[rows, chosen] = False
    scores = np.where(labels >= 0, -np.arange(k, dtype=np.float32), np.float32(-np.inf))
    return TopK(labels, scores.astype(np.float32), "score")
