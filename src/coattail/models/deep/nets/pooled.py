"""Networks that make one vector of a text: XML-CNN and the BiLSTM with max-pooling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coattail.models.deep.batching import Batch
from coattail.models.deep.deep_params import BilstmParams, XmlCnnParams
from coattail.models.deep.nets.attentionxml import pick
from coattail.models.deep.nets.layers import (
    PLAIN,
    BiLstm,
    Convolutions,
    Layers,
    Reading,
    Words,
    dropout,
    max_pool,
)
from coattail.models.deep.nets.loss import cross_entropy
from coattail.models.deep.nets.step import Step


class PooledNet(nn.Module):
    """A text's vector times one row per label, over labels in blocks."""

    in_threads = True  # see batch_pieces.works_alone

    def __init__(self, params: XmlCnnParams | BilstmParams, n_labels: int, width: int) -> None:
        super().__init__()
        self.params, self.n_labels = params, n_labels
        self.output = nn.Linear(width, n_labels)

    def pooled(self, batch: Batch, reading: Reading) -> Tensor:
        """The vector of every text: (B, width)."""
        raise NotImplementedError

    def blocks(self, device: torch.device) -> tuple[Tensor, ...]:
        return torch.arange(self.n_labels, device=device).split(self.params.label_block)

    def logits(self, vectors: Tensor, block: Tensor) -> Tensor:
        first, last = int(block[0]), int(block[-1]) + 1
        return F.linear(vectors, self.output.weight[first:last], self.output.bias[first:last])

    def backward(self, batch: Batch, step: Step) -> Tensor:
        """Add the gradients of one batch; the mean loss."""
        targets, weights = step.targets, step.weights
        vectors = self.pooled(batch, Reading(step.generator, step.mixture))
        if step.mixture is not None:
            targets = step.mixture.blend(targets)
        leaf = vectors.detach().requires_grad_()
        total = torch.zeros((), device=leaf.device)
        for block in self.blocks(leaf.device):
            w = None if weights is None else weights[block]
            loss = cross_entropy(self.logits(leaf, block), pick(targets, block), w)
            loss = loss / targets.numel()
            loss.backward()
            total = total + loss.detach()
        vectors.backward(leaf.grad)
        return total

    @torch.no_grad()
    def score(self, batch: Batch, k: int) -> tuple[Tensor, Tensor]:
        """All labels (B, L) and their logits."""
        vectors = self.pooled(batch, PLAIN)
        logits = [self.logits(vectors, block) for block in self.blocks(vectors.device)]
        labels = torch.arange(self.n_labels, device=vectors.device)
        return labels.expand(len(batch.rows), -1), torch.cat(logits, dim=1)


class XmlCnnNet(PooledNet):
    """Convolutions over word vectors, dynamic max-pooling, a bottleneck with ReLU."""

    def __init__(self, params: XmlCnnParams, n_labels: int, vocabulary_size: int, dim: int) -> None:
        super().__init__(params, n_labels, params.bottleneck)
        self.rate = params.dropout
        self.words = Words(vocabulary_size, dim, params.train_embeddings, params.embedding_dropout)
        self.maps = Convolutions(dim, params.filters, params.widths, params.pools)
        self.bottleneck = nn.Linear(self.maps.out_features, params.bottleneck)

    def pooled(self, batch: Batch, reading: Reading) -> Tensor:
        features = self.maps(*self.words.read(batch, reading))
        if reading.mixture is not None and reading.mixes("hidden"):
            features = reading.mixture.blend(features)
        return dropout(F.relu(self.bottleneck(features)), self.rate, reading.generator)


class BilstmNet(PooledNet):
    """BiLSTM states, the largest value of each over the words, fully connected layers."""

    def __init__(self, params: BilstmParams, n_labels: int, vocabulary_size: int, dim: int) -> None:
        super().__init__(params, n_labels, params.fc[-1])
        self.words = Words(vocabulary_size, dim, params.train_embeddings, params.embedding_dropout)
        self.lstm = BiLstm(dim, params.hidden, params.dropout, params.words_per_step)
        self.fc = Layers([2 * params.hidden, *params.fc])

    def pooled(self, batch: Batch, reading: Reading) -> Tensor:
        states, mask = self.lstm(*self.words.read(batch, reading), reading.generator)
        if reading.mixture is not None and reading.mixes("hidden"):
            states, mask = reading.mixture.blend_states(states, mask)
        return F.relu(self.fc(max_pool(states, mask)))
