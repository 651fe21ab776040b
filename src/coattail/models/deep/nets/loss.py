"""Weighted binary cross-entropy: PW and PW-cb multiply the positive part only."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from coattail.labels import frequency

Weighting = Literal["none", "pw", "pwcb"]


def positive_weights(
    weighting: Weighting,
    counts: NDArray,
    n_texts: int,
    propensity: tuple[float, float] = (0.55, 1.5),
    beta: float = 0.9,
) -> NDArray[np.float32] | None:
    """Weight of the positives of every label (or tree node), of mean 1 (eq. 24); None: no weights.

    PW: 2 q - 1 with q the inverse propensity of ``counts`` texts out of ``n_texts``; PW-cb: times
    (1 - beta) / (1 - beta^n). Labels without a text count as having one.
    """
    if weighting == "none":
        return None
    n = np.maximum(np.asarray(counts, np.int64), 1)
    q = frequency.inverse_propensity(n, n_texts, *propensity)
    weights = frequency.pw_weights(q) if weighting == "pw" else frequency.pwcb_weights(q, n, beta)
    return (weights * len(weights) / weights.sum()).astype(np.float32)


def cross_entropy(
    logits: Tensor, targets: Tensor, weights: Tensor | None, skip: Tensor | None = None
) -> Tensor:
    """Sum of -(w y log p + (1 - y) log(1 - p)) over all positions that are not skipped.

    Parameters
    ----------
    logits, targets : (B, C)
        Targets may lie between 0 and 1.
    weights : (C,) or (B, C), optional
        Weights of the positive part.
    skip : bool (B, C), optional
        Positions that do not count.
    """
    each = F.binary_cross_entropy_with_logits(
        logits.float(), targets, pos_weight=weights, reduction="none" if skip is not None else "sum"
    )
    return each if skip is None else each.masked_fill(skip, 0.0).sum()
