"""OLTR: a memory of label centroids adds features of frequent labels to texts of rare ones."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, normalize, relu

from coattail.arrays import Ragged, TopK
from coattail.models.deep.batching import Batch, dense_targets
from coattail.models.deep.fit_data import FitData
from coattail.models.deep.training.loop import Run
from coattail.models.deep.transfer.encoder_model import (
    ORDER,
    Chance,
    EncoderLesson,
    EncoderModel,
    EncoderParts,
    Loss,
    ranked,
)
from coattail.models.deep.transfer.encoder_net import fill
from coattail.models.deep.transfer.transfer_params import OltrParams

# A text that is a label's only one lies on its centroid: its reach would be infinite.
NEAREST = 0.1


class Memory(nn.Module):
    """From direct features to modulated ones to cosines with labels.

    The memory is read, not learned, in the forward pass; ``pull`` is what moves the centroids.
    """

    def __init__(self, params: OltrParams, centroids: Tensor, odds: float) -> None:
        super().__init__()
        seen, d = centroids.shape
        self.reach, self.margin = params.reach, params.margin
        self.cosine_scale = params.cosine_scale
        with torch.random.fork_rng(devices=[]):
            self.recall = nn.Linear(d, seen)  # which labels' centroids a text calls up
            self.select = nn.Linear(d, d)  # which of their features it takes
            self.rows = nn.Linear(d, seen, bias=False)
        generator = torch.Generator().manual_seed(params.seed + 1)
        for layer in (self.recall, self.select, self.rows):
            fill(layer, generator)
        self.centroids = nn.Parameter(centroids.clone())
        self.bias = nn.Parameter(torch.tensor(odds))

    def modulate(self, direct: Tensor) -> Tensor:
        """``reach / distance * (v + e * memory)`` of direct features v (B, d)."""
        centroids = self.centroids.detach()
        memory = self.recall(direct).softmax(dim=1) @ centroids
        enriched = direct + torch.tanh(self.select(direct)) * memory
        nearest = torch.cdist(direct, centroids).amin(dim=1, keepdim=True)
        return self.reach / nearest.clamp_min(NEAREST) * enriched

    def forward(self, direct: Tensor) -> Tensor:
        """Logits (B, seen)."""
        meta = self.modulate(direct)
        squared = meta.square().sum(dim=1, keepdim=True)
        squashed = squared / (1 + squared) * normalize(meta, dim=1)
        return self.cosine_scale * squashed @ normalize(self.rows.weight, dim=1).T + self.bias

    def pull(self, direct: Tensor, truth: Tensor) -> Tensor:
        """Distance to the centroids of own labels, and a push away from the others."""
        squares = torch.cdist(direct, self.centroids).square()  # (B, seen)
        own = (squares * truth).sum() / truth.sum().clamp_min(1)
        others = (squares * (1 - truth)).sum() / (1 - truth).sum().clamp_min(1)
        return own + 0.01 * relu(self.margin - others)


class Oltr(EncoderModel):
    """Open long-tailed recognition (Liu et al. 2019), closed set, multi-label.

    Attributes
    ----------
    memory_ : Memory
    seen_ : int64 (seen,)
        Labels that a training text has; the memory knows no others.
    """

    params: OltrParams

    def _teach(self, data: FitData[Ragged], run: Run) -> None:
        p = self.params
        self.seen_ = np.flatnonzero(np.diff(sp.csc_matrix(data.Y).indptr)).astype(np.int64)
        self._learn_rows(data, self.seen_, run, "direct features")
        cut = data.Y[:, self.seen_].tocsr()
        labelled = np.flatnonzero(np.diff(cut.indptr))
        odds = cut.nnz / max(cut.shape[0] * cut.shape[1] - cut.nnz, 1)
        vectors = self._kept_vectors(data.inputs, run, "vectors")
        centroids = torch.from_numpy(centroids_of(vectors, cut)).to(self.device_)
        self.memory_ = Memory(p, centroids, float(np.log(odds))).to(self.device_)

        def rank(texts: Batch, k: int) -> TopK:
            return ranked(self._scores(texts), None, k)

        lesson = EncoderLesson(
            "memory",
            "memory",
            EncoderParts(self.net_, top=self.memory_),
            data.inputs.take(labelled),
            self._remember(cut[labelled], data.propensity),
            p.memory_epochs,
            torch.Generator().manual_seed(p.seed + 2),
            [p.seed, ORDER, 1],
            self._judge(data.valid, self.seen_, rank),
        )
        self._train(lesson, run)

    def _remember(self, Y: sp.csr_matrix, propensity: tuple[float, float]) -> Loss:
        """Cross-entropy of the memory's logits, plus the pull on its centroids."""
        weights = self._positive_weights(Y, propensity)

        def loss(part: EncoderParts, texts: Batch, chance: Chance, epoch: int) -> Tensor:
            memory = part.top
            assert isinstance(memory, Memory)
            direct = part.net.unit_vectors(texts, chance.dropout)
            truth = dense_targets(Y, texts.rows, self.device_)
            entropy = binary_cross_entropy_with_logits(memory(direct), truth, pos_weight=weights)
            return entropy + self.params.memory_loss * memory.pull(direct, truth)

        return loss

    def _scores(self, texts: Batch) -> Tensor:
        return torch.sigmoid(self.memory_(self.net_.unit_vectors(texts)))

    def _rank(self, texts: Batch, k: int) -> TopK:
        return ranked(self._scores(texts), self.seen_, k)

    def _tensors(self) -> dict[str, Tensor]:
        memory = {f"memory.{name}": t for name, t in self.memory_.state_dict().items()}
        return memory | {"seen": torch.from_numpy(self.seen_)}

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        memory = {n[7:]: t for n, t in tensors.items() if n.startswith("memory.")}
        self.memory_ = Memory(self.params, memory["centroids"], 0.0).to(self.device_)
        self.memory_.load_state_dict(memory)
        self.seen_ = tensors["seen"].cpu().numpy()


def centroids_of(vectors: np.ndarray, Y: sp.csr_matrix) -> np.ndarray:
    """Mean vector (labels, d) of the texts of each label; zeros for a label without one."""
    counts = np.asarray(Y.sum(axis=0)).ravel()
    return np.asarray((Y.T @ vectors) / np.maximum(counts, 1)[:, None], np.float32)
