"""Adaptive probabilistic label clusters (APLC): frequent labels first, rare ones behind a root."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from coattail.labels import frequency
from coattail.models.deep.batching import Batch
from coattail.models.deep.deep_params import AplcParams
from coattail.models.deep.nets.layers import PLAIN, Reading, dropout, mean_pool
from coattail.models.deep.nets.pretrained import Pretrained
from coattail.models.deep.nets.span_mix import exchange_spans
from coattail.models.deep.nets.step import Step
from coattail.models.deep.nets.transformer import TextEncoder


class Tail(nn.Module):
    """A cluster of rare labels: fewer features, normalised, then one output per label."""

    def __init__(self, width: int, narrow: int, size: int) -> None:
        super().__init__()
        self.narrow = nn.Linear(width, narrow)
        self.norm = nn.LayerNorm(narrow)
        self.output = nn.Linear(narrow, size)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.output(F.relu(self.norm(self.narrow(vectors))))


class Clusters(nn.Module):
    """P(label) = P(cluster) P(label | cluster); the labels of the first cluster have no root.

    Labels stand in ``order``, most frequent first. The first cluster's outputs and a root for every
    tail cluster come from the text's vector itself, a tail's from a projection to width / 2^i.
    """

    def __init__(self, width: int, n_labels: int, cuts: list[float]) -> None:
        super().__init__()
        bounds = [0, *sorted({min(max(round(c * n_labels), 1), n_labels) for c in cuts}), n_labels]
        self.bounds = sorted(set(bounds))
        sizes = np.diff(self.bounds).tolist()
        self.register_buffer("order", torch.arange(n_labels))
        self.head = nn.Linear(width, sizes[0] + len(sizes) - 1)
        self.tails = nn.ModuleList(
            Tail(width, max(width // 2**i, 1), size) for i, size in enumerate(sizes[1:], 1)
        )

    def members(self, cluster: int) -> Tensor:
        """Labels of a cluster, most frequent first."""
        return self.order[self.bounds[cluster] : self.bounds[cluster + 1]]

    def roots(self, targets: Tensor) -> Tensor:
        """Whether a text has a label in each tail cluster: float (B, tails)."""
        parts = [targets[:, self.members(i)].amax(dim=1) for i in range(1, len(self.bounds) - 1)]
        return torch.stack(parts, dim=1) if parts else targets.new_zeros(len(targets), 0)

    def loss(
        self, vectors: Tensor, targets: Tensor, roots: Tensor, weights: Tensor | None
    ) -> Tensor:
        """Mean over texts of the mean loss over the outputs that a text evaluates.

        These are the first cluster, the roots, and tail clusters with a positive. ``weights`` of
        positives (L,) go with labels; roots have none.
        """
        first = self.members(0)
        wanted = torch.cat([targets[:, first], roots], dim=1)
        w = None
        if weights is not None:
            w = torch.cat([weights[first], weights.new_ones(roots.shape[1])])
        total = _each(self.head(vectors), wanted, w)
        count = torch.full_like(total, wanted.shape[1])
        for i, tail in enumerate(self.tails, 1):
            rows = roots[:, i - 1].nonzero().squeeze(1)
            inside = self.members(i)
            w = None if weights is None else weights[inside]
            part = _each(tail(vectors[rows]), targets[rows][:, inside], w)
            total = total.index_add(0, rows, part)
            count = count.index_add(0, rows, torch.full_like(part, len(inside)))
        return (total / count).mean()

    def logits(self, vectors: Tensor) -> Tensor:
        """Log-odds of every label's probability, in the order of the labels: (B, L)."""
        head = self.head(vectors).float()
        size = self.bounds[1]
        pieces = [head[:, :size]]
        for i, tail in enumerate(self.tails):
            root = F.logsigmoid(head[:, size + i]).unsqueeze(1)
            both = (root + F.logsigmoid(tail(vectors).float())).clamp(max=-1e-7)
            pieces.append(both - torch.log(-torch.expm1(both)))
        sorted_logits = torch.cat(pieces, dim=1)
        return torch.empty_like(sorted_logits).index_copy_(1, self.order, sorted_logits)

    @torch.no_grad()
    def start(self, Y: sp.csr_matrix) -> None:
        """Sort the labels of (n, L) by frequency, and let the biases say how often they occur."""
        counts = frequency.counts(Y)
        order = np.lexsort((np.arange(len(counts)), -counts))
        self.order.copy_(torch.from_numpy(order))
        in_cluster = [
            np.asarray(Y[:, order[low:high]].sum(axis=1)).ravel() > 0
            for low, high in zip(self.bounds[1:], self.bounds[2:], strict=False)
        ]
        with_label = np.array([part.sum() for part in in_cluster], np.int64)
        head = np.concatenate([counts[order[: self.bounds[1]]], with_label])
        self.head.bias.copy_(_log_odds(head, Y.shape[0]))
        for i, tail in enumerate(self.tails, 1):
            members = counts[order[self.bounds[i] : self.bounds[i + 1]]]
            tail.output.bias.copy_(_log_odds(members, int(with_label[i - 1])))


def _each(logits: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Summed loss of every text: (B,)."""
    return F.binary_cross_entropy_with_logits(
        logits.float(), targets, pos_weight=weights, reduction="none"
    ).sum(dim=1)


def _log_odds(counts: NDArray, n: int) -> Tensor:
    odds = (counts + 0.5) / (n - counts + 0.5)
    return torch.from_numpy(np.log(odds).astype(np.float32))


class AplcNet(nn.Module):
    """Encoder, one vector per text, a layer with tanh, label clusters."""

    def __init__(self, params: AplcParams, n_labels: int, pretrained: Pretrained) -> None:
        super().__init__()
        self.params, self.n_labels = params, n_labels
        self.in_threads = params.freeze_encoder  # else dropout draws global numbers
        self.encoder = TextEncoder(pretrained, params)
        width = self.encoder.width
        self.summary = nn.Linear(width, width)
        self.clusters = Clusters(width, n_labels, params.cuts)

    def start_outputs(self, Y: sp.csr_matrix) -> None:
        self.clusters.start(Y)

    def fixed(self, batch: Batch) -> Tensor:
        """What a frozen encoder makes of texts: (B, d)."""
        return self._pool(batch, *self.encoder(batch))

    def vectors(self, batch: Batch, reading: Reading = PLAIN) -> Tensor:
        """One vector per text: (B, d)."""
        if batch.states is not None:
            pooled = batch.states
        else:
            pooled = self._pool(batch, *self.encoder(batch, reading))
        if reading.mixture is not None and reading.mixes("hidden"):
            pooled = reading.mixture.blend(pooled)
        return dropout(torch.tanh(self.summary(pooled)), self.params.dropout, reading.generator)

    def _pool(self, batch: Batch, states: Tensor, mask: Tensor) -> Tensor:
        if self.params.summary == "mean":
            return mean_pool(states, mask)
        if self.params.summary == "first":
            return states[:, 0]
        last = mask.sum(dim=1) - 1  # of the longer text, in a mixture
        return states[torch.arange(len(last), device=last.device), last]

    def backward(self, batch: Batch, step: Step) -> Tensor:
        """Add the gradients of one batch; the mean loss."""
        targets, weights, mixture = step.targets, step.weights, step.mixture
        roots = self.clusters.roots(targets)
        if mixture is not None:
            labels_mixed = mixture
            if mixture.place == "span":
                saliency = self._saliency(batch, targets, roots, weights)
                changeable = self.encoder.changeable(batch)
                share = self.params.mix_span
                batch, labels_mixed = exchange_spans(
                    batch, changeable, saliency, mixture.partner, share
                )
                mixture = None
            targets, roots = labels_mixed.blend(targets), labels_mixed.blend(roots)
        vectors = self.vectors(batch, Reading(step.generator, mixture))
        loss = self.clusters.loss(vectors, targets, roots, weights)
        loss.backward()
        return loss.detach()

    def _saliency(
        self, batch: Batch, targets: Tensor, roots: Tensor, weights: Tensor | None
    ) -> Tensor:
        """Norm of the gradient of every piece's vector, (B, T); dropout is off."""
        words = self.encoder.embed(batch).detach().requires_grad_()
        vectors = self.vectors(replace(batch, states=None), Reading(words=words))
        # The sum over texts: a text's saliency does not depend on the size of its batch.
        loss = self.clusters.loss(vectors, targets, roots, weights) * len(targets)
        return torch.autograd.grad(loss, words)[0].norm(dim=2)

    @torch.no_grad()
    def score(self, batch: Batch, k: int) -> tuple[Tensor, Tensor]:
        """All labels (B, L) and their logits."""
        logits = self.clusters.logits(self.vectors(batch))
        every = torch.arange(self.n_labels, device=logits.device)
        return every.expand(len(batch.rows), -1), logits
