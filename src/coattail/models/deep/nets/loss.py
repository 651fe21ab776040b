"""Weighted binary cross-entropy: PW and PW-cb multiply the positive part only."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from coattail.labels import weighting as weights_of
from coattail.labels.weighting import Weighting


def positive_weights(
    weighting: Weighting,
    counts: NDArray,
    n_texts: int,
    propensity: tuple[float, float] = (0.55, 1.5),
    beta: float = 0.9,
) -> NDArray[np.float32] | None:
    """`labels.weighting.positive_weights` of mean 1 (eq. 24); None: no weights."""
    if weighting == "none":
        return None
    weights = weights_of.positive_weights(
        weighting, counts, n_texts, propensity, beta, normalise=True
    )
    return weights.astype(np.float32)


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
