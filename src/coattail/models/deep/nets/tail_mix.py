"""TailMix (label-wise, in place) and its rivals that mix whole texts: wordMix and hiddenMix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Pairs:
    """What TailMix mixes: for text ``row[p]`` label ``target[p]`` with ``partner[p]``."""

    row: Tensor  # int64 (P,)
    target: Tensor  # int64 (P,)
    partner: Tensor  # int64 (P,)
    share: Tensor  # float (P,), the target's share (lambda)


def label_graph(Y: sp.csr_matrix) -> sp.csr_matrix:
    """Which labels occur together in a training text; no label is its own neighbour."""
    A = sp.csr_matrix(Y.T @ Y)
    A.setdiag(0)
    A.eliminate_zeros()
    A.data[:] = 1
    A.sort_indices()
    return A


def draw_targets(
    labels: NDArray, weights: NDArray, most: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """At most ``most`` of a text's labels without replacement, probability softmax(weights)."""
    if len(labels) <= most:
        return np.asarray(labels, np.int64)
    share = np.exp(weights - weights.max())
    chosen = rng.choice(len(labels), size=most, replace=False, p=share / share.sum())
    return np.asarray(labels[np.sort(chosen)], np.int64)


def batch_targets(
    Y: sp.csr_matrix,
    rows: NDArray[np.int64],
    rarity: NDArray,
    most: int,
    allowed: NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Place in the batch and label of every draw, among ``allowed`` labels only."""
    places, targets = [], []
    for place, row in enumerate(rows):
        labels = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        labels = labels[allowed[labels]]
        drawn = draw_targets(labels, rarity[labels], most, rng) if len(labels) else labels
        places.append(np.full(len(drawn), place))
        targets.append(drawn)
    return np.concatenate(places).astype(np.int64), np.concatenate(targets).astype(np.int64)


class TailMixer:
    """Algorithm 1 of TailMix: which labels of a text are mixed, with which, and how much."""

    def __init__(
        self,
        Y: sp.csr_matrix,
        rarity: NDArray,
        most: int,
        alpha: float,
        use_similarity: bool,
        use_graph: bool,
    ) -> None:
        self.Y, self.rarity, self.most, self.alpha = Y, rarity, most, alpha
        self.use_similarity = use_similarity
        self.graph = label_graph(Y) if use_graph else None
        self.rng = np.random.default_rng(0)
        degree = np.ones(Y.shape[1]) if self.graph is None else np.diff(self.graph.indptr)
        self._allowed = degree > 0

    def seed(self, seed: list[int]) -> None:
        """Random numbers of the coming step."""
        self.rng = np.random.default_rng(seed)

    def draw(self, rows: NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
        """Place in the batch and label of every draw, int64 (P,) each."""
        drawn = batch_targets(self.Y, rows, self.rarity, self.most, self._allowed, self.rng)
        place, target = (torch.from_numpy(a).to(device) for a in drawn)
        return place, target

    def pair(
        self,
        row: Tensor,
        target: Tensor,
        own: Tensor,
        pieces: Iterable[tuple[Tensor, Tensor]],
        generator: torch.Generator,
    ) -> Pairs:
        """Find every draw's partner among ``pieces`` (labels (P, C), context vectors (P, C, d))."""
        partner = torch.full_like(target, -1)
        best = torch.full(target.shape, float("inf"), device=own.device)
        for labels, vectors in pieces:
            if self.use_similarity:
                distance = (vectors - own.unsqueeze(1)).norm(dim=2)
            else:
                distance = torch.rand(labels.shape, generator=generator, device=own.device)
            distance = distance.masked_fill(~self._usable(target, labels), float("inf"))
            nearest, place = distance.min(dim=1)
            found = labels.gather(1, place.unsqueeze(1)).squeeze(1)
            partner = torch.where(nearest < best, found, partner)
            best = torch.minimum(nearest, best)
        share = torch.from_numpy(self.rng.beta(self.alpha, self.alpha, len(target)))
        share = share.to(own.device, torch.float32)  # as labels, whatever the vectors are
        keep = partner >= 0
        return Pairs(row[keep], target[keep], partner[keep], share[keep])

    def _usable(self, target: Tensor, labels: Tensor) -> Tensor:
        """Which labels (P, C) may be partners of ``target`` (P,): other ones, and neighbours."""
        other = labels != target.unsqueeze(1)
        if self.graph is None or not len(target):
            return other
        linked = self.graph[target.cpu().numpy()].toarray() > 0  # (P, L)
        return other & torch.from_numpy(linked).to(labels.device).gather(1, labels)


def soft_targets(targets: Tensor, pairs: Pairs) -> Tensor:
    """Targets after mixing: lambda at the target, at least 1 - lambda at the partner.

    A partner that is a true label keeps its 1; one that is itself a target keeps its own lambda.
    """
    out = targets.clone()
    flat = out.view(-1)
    width = targets.shape[1]
    flat.scatter_reduce_(0, pairs.row * width + pairs.partner, 1 - pairs.share, "amax")
    flat[pairs.row * width + pairs.target] = pairs.share
    return out
