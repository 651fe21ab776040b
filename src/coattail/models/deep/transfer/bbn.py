"""BBN: one branch samples texts evenly, the other favours rare labels; epochs blend them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

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
from coattail.models.deep.transfer.encoder_net import HttnNet, attend, fill
from coattail.models.deep.transfer.transfer_params import BbnParams, EncoderParams


def alpha(epoch: int, epochs: int) -> float:
    """Share of the conventional branch: 1 at the start, then falling ever faster (eq. 6)."""
    return 1 - (epoch / epochs) ** 2


class ReversedSampler:
    """Draws a label, one with n texts with probability ~ 1/n, and then one of its texts."""

    def __init__(self, Y: sp.csr_matrix) -> None:
        self.members = sp.csc_matrix(Y)
        counts = np.diff(self.members.indptr)
        self.labels = np.flatnonzero(counts)
        weight = 1 / counts[self.labels]
        self.share = weight / weight.sum()

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Numbers of ``size`` texts, repeats allowed."""
        label = self.labels[rng.choice(len(self.labels), size=size, p=self.share)]
        first, last = self.members.indptr[label], self.members.indptr[label + 1]
        place = first + np.floor(rng.random(size) * (last - first)).astype(np.int64)
        return self.members.indices[place].astype(np.int64)


class Branch(nn.Module):
    """The re-balancing branch: its own attention, projection and scale over the shared states."""

    def __init__(self, params: EncoderParams) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            self.look = nn.Linear(2 * params.hidden, 1)
            self.project = nn.Linear(2 * params.hidden, params.dim)
            self.scale = nn.Parameter(torch.tensor(params.scale))
        generator = torch.Generator().manual_seed(params.seed + 1)
        fill(self.look, generator)
        fill(self.project, generator)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Scaled vectors (B, d)."""
        vectors: Tensor = attend(states, lengths, self.look, self.project) * self.scale
        return vectors


class Bbn(EncoderModel):
    """Bilateral-branch network (Zhou et al. 2020), multi-label.

    Attributes
    ----------
    branch_ : Branch
        The re-balancing branch; the conventional one is the encoder's own.
    rows_ : float32 (2, seen, d)
        Classifier rows of both branches for the labels that a training text has.
    seen_ : int64 (seen,)
        Those labels.
    """

    params: BbnParams

    def _teach(self, data: FitData[Ragged], run: Run) -> None:
        p = self.params
        self.seen_ = np.flatnonzero(np.diff(sp.csc_matrix(data.Y).indptr)).astype(np.int64)
        cut = data.Y[:, self.seen_].tocsr()
        generator = torch.Generator().manual_seed(p.seed)
        self.branch_ = Branch(p).to(self.device_)
        rows = [self._rows(len(self.seen_), generator) for _ in range(2)]
        self._start_offset(cut)

        def rank(texts: Batch, k: int) -> TopK:
            return ranked(self._scores(texts, rows[0], rows[1]), None, k)

        lesson = EncoderLesson(
            "two branches",
            "branches",
            EncoderParts(self.net_, rows, self.branch_),
            data.inputs,
            self._blend(data.inputs, cut, self._positive_weights(cut, data.propensity)),
            p.epochs,
            generator,
            [p.seed, ORDER],
            self._judge(data.valid, self.seen_, rank),
        )
        self._train(lesson, run)
        self.rows_ = torch.stack([part.detach() for part in rows])

    def _blend(self, tokens: Ragged, Y: sp.csr_matrix, weights: Tensor | None) -> Loss:
        """The loss of both branches, each with texts of its own sampler."""
        sampler = ReversedSampler(Y)

        def loss(part: EncoderParts, texts: Batch, chance: Chance, epoch: int) -> Tensor:
            share = alpha(epoch, self.params.epochs)
            rare = self._pad(tokens, sampler.draw(len(texts.rows), chance.samples))
            usual = part.net(texts, chance.dropout) @ part.rows[0].T
            states = part.net.states(rare, chance.dropout)
            assert part.top is not None
            balanced = part.top(states, rare.lengths) @ part.rows[1].T
            # Twice, so that equal shares give what both branches add up to when ranking.
            logits = 2 * (share * usual + (1 - share) * balanced) + part.net.offset
            total = 0 * logits.sum()
            for weight, batch in ((share, texts), (1 - share, rare)):
                truth = dense_targets(Y, batch.rows, self.device_)
                entropy = binary_cross_entropy_with_logits(logits, truth, pos_weight=weights)
                total = total + weight * entropy
            return total

        return loss

    def _scores(self, texts: Batch, usual: Tensor, balanced: Tensor) -> Tensor:
        """Probabilities (B, seen): both branches read the same text and count the same."""
        net: HttnNet = self.net_
        states = net.states(texts)
        first = attend(states, texts.lengths, net.look, net.project) * net.scale
        second = self.branch_(states, texts.lengths)
        return torch.sigmoid(first @ usual.T + second @ balanced.T + net.offset)

    def _rank(self, texts: Batch, k: int) -> TopK:
        return ranked(self._scores(texts, *self.rows_), self.seen_, k)

    def _tensors(self) -> dict[str, Tensor]:
        branch = {f"branch.{name}": t for name, t in self.branch_.state_dict().items()}
        return branch | {"rows": self.rows_, "seen": torch.from_numpy(self.seen_)}

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        self.branch_ = Branch(self.params).to(self.device_)
        branch = {n[7:]: t for n, t in tensors.items() if n.startswith("branch.")}
        self.branch_.load_state_dict(branch)
        self.rows_, self.seen_ = tensors["rows"], tensors["seen"].cpu().numpy()
