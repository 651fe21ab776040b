"""From scores of a batch to rankings of all texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from coattail.arrays import TopK, best_first
from coattail.models.deep.training.batch_pieces import Each
from coattail.models.deep.training.loop import Rows


def rank(columns: Tensor, logits: Tensor, k: int) -> TopK:
    """The best k of scored labels (B, m), ties to the smaller label."""
    if logits.shape[1] > 4 * k:  # narrow first: sorting all labels twice is the slow part
        # A stable sort keeps the smaller label first among equal logits.
        order = logits.sort(dim=1, descending=True, stable=True).indices[:, : 2 * k]
        columns, logits = columns.gather(1, order), logits.gather(1, order)
    scores = torch.sigmoid(logits.float())
    return best_first(columns.cpu().numpy(), scores.cpu().numpy(), k)


def rank_all(
    n: int, k: int, batches: Iterable[Rows], rank_rows: Callable[[Rows], TopK], each: Each
) -> TopK:
    """The best k labels of n texts, ranked batch by batch."""
    found = np.full((n, k), -1, np.int32)
    scores = np.full((n, k), -np.inf, np.float32)

    def fill(rows: Rows) -> None:
        top = rank_rows(rows)
        found[rows], scores[rows] = top.labels, top.scores

    each(fill, batches)
    return TopK(found, scores, "probability")
