"""SSMix: replace a text's least salient span by another text's most salient one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coattail.models.deep.batching import Batch
from coattail.models.deep.nets.layers import Mixture


def exchange_spans(
    batch: Batch, changeable: Tensor, saliency: Tensor, partner: Tensor, share: float
) -> tuple[Batch, Mixture]:
    """Put a span of ``partner[i]`` into text i, and say how their labels mix.

    Both spans have ``max(1, floor(share * words))`` words, counted in text i; text i keeps the rest
    of its words, and of its labels. A text of fewer than two words, or whose partner is shorter
    than the span, stays as it is.

    Parameters
    ----------
    changeable : bool (B, T)
        Words that may be replaced or taken: neither padding nor the encoder's own signs.
    saliency : float (B, T)
        How much each word matters.
    partner : int64 (B,)
        Place in the batch of the text to take from.
    """
    allowed = changeable.cpu().numpy()
    weight = saliency.detach().double().cpu().numpy()
    other = partner.cpu().numpy()
    ids = batch.ids.cpu().numpy()
    mixed, kept = ids.copy(), np.ones(len(ids), np.float32)
    for i, j in enumerate(other):
        words = int(allowed[i].sum())
        size = max(1, int(share * words))
        if words < 2:
            continue
        worst = _span(-weight[i], allowed[i], size)
        best = _span(weight[j], allowed[j], size)
        if worst is None or best is None:
            continue
        mixed[i, worst : worst + size] = ids[j, best : best + size]
        kept[i] = 1 - size / words
    device = batch.ids.device
    labels = Mixture(partner, torch.from_numpy(kept).to(device), "labels")
    return replace(batch, ids=torch.from_numpy(mixed).to(device), states=None), labels


def _span(weight: NDArray, allowed: NDArray[np.bool_], size: int) -> int | None:
    """Where the span of ``size`` allowed words with the largest sum begins; the first if equal."""
    if len(weight) < size:
        return None
    whole = np.convolve(allowed, np.ones(size, np.int64), "valid") == size
    if not whole.any():
        return None
    sums = np.lib.stride_tricks.sliding_window_view(weight, size).sum(axis=1)
    return int(np.argmax(np.where(whole, sums, -np.inf)))
