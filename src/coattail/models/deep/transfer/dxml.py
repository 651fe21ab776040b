"""DXML: map texts to the vectors of their labels in a label graph; the nearest texts vote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from coattail.arrays import Ragged, TopK, load_csr, save_csr, topk_of_csr
from coattail.models.deep.batching import Batch
from coattail.models.deep.fit_data import FitData
from coattail.models.deep.nets.tail_mix import label_graph
from coattail.models.deep.training.loop import Run
from coattail.models.deep.transfer.encoder_model import (
    ORDER,
    WALKS,
    Chance,
    EncoderLesson,
    EncoderModel,
    EncoderParts,
    Held,
)
from coattail.models.deep.transfer.label_walks import (
    embed,
    positive_pmi,
    random_walks,
    window_counts,
)
from coattail.models.deep.transfer.prototypes import unit
from coattail.models.deep.transfer.transfer_params import DxmlParams

BLOCK = 65536  # training texts compared with a batch at a time


class Dxml(EncoderModel):
    """Deep extreme multi-label learning (Zhang et al. 2018).

    Attributes
    ----------
    places_ : float32 tensor (n, d)
        Unit vectors of the training texts that have a label.
    Y_ : CSR (n, L)
        Their labels.
    """

    params: DxmlParams

    def _teach(self, data: FitData[Ragged], run: Run) -> None:
        p = self.params
        labelled = np.flatnonzero(np.diff(data.Y.indptr))
        self.Y_, tokens = data.Y[labelled], data.inputs.take(labelled)
        walk = lambda: {"places": embed_labels(self.Y_, p)}  # noqa: E731
        vectors = run.checkpoint.arrays("labels", walk)["places"]
        targets = torch.from_numpy(text_targets(self.Y_, vectors)).to(self.device_)

        def loss(part: EncoderParts, texts: Batch, chance: Chance, epoch: int) -> Tensor:
            cosine = part.net.unit_vectors(texts, chance.dropout) * targets[texts.rows]
            return (1 - cosine.sum(dim=1)).mean()

        held = self._held_out(data.valid, np.arange(data.Y.shape[1]))
        lesson = EncoderLesson(
            "places in the label graph",
            "places",
            EncoderParts(self.net_),
            tokens,
            loss,
            p.epochs,
            torch.Generator().manual_seed(p.seed),
            [p.seed, ORDER],
            None if held is None else lambda: self._likeness(held, vectors),
            measure="valid_cosine",
        )
        self._train(lesson, run)
        self.places_ = torch.from_numpy(self._kept_vectors(tokens, run, "vectors"))
        self.places_ = self.places_.to(self.device_)

    def _likeness(self, held: Held, vectors: NDArray) -> float:
        """Mean cosine of validation texts and the places of their labels."""
        wanted = text_targets(held[1], vectors)
        return float((self._vectors(held[0]) * wanted).sum(axis=1).mean())

    def _rank(self, texts: Batch, k: int) -> TopK:
        near, likeness = nearest(
            self.net_.unit_vectors(texts), self.places_, self.params.neighbours
        )
        return vote(near.cpu().numpy(), likeness.cpu().numpy(), self.Y_, k)

    def _tensors(self) -> dict[str, Tensor]:
        return {"places": self.places_}

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        self.places_ = tensors["places"]

    def _save_more(self, folder: Path) -> None:
        save_csr(folder / "Y", self.Y_)

    def _load_more(self, folder: Path) -> None:
        self.Y_ = load_csr(folder / "Y")


def embed_labels(Y: sp.csr_matrix, params: DxmlParams) -> NDArray[np.float64]:
    """Unit vectors (L, d) of the labels of Y by random walks over those that occur together."""
    rng = np.random.default_rng([params.seed, WALKS])
    walks = random_walks(label_graph(Y), params.walks, params.walk_length, rng)
    counts = window_counts(walks, params.window, Y.shape[1])
    return embed(positive_pmi(counts), params.dim, rng)


def text_targets(Y: sp.csr_matrix, vectors: NDArray) -> NDArray[np.float32]:
    """Where a text belongs: the mean of its labels' vectors, of unit length, (n, d)."""
    return unit(np.asarray(Y @ vectors)).astype(np.float32)


def nearest(vectors: Tensor, places: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The training texts (B, count) most like each vector (B, d), and their cosines."""
    found = likeness = None
    for first in range(0, len(places), BLOCK):
        block = vectors @ places[first : first + BLOCK].T
        number = torch.arange(first, first + block.shape[1], device=block.device)
        number = number.expand(len(block), -1)
        if found is not None and likeness is not None:
            block = torch.cat([likeness, block], dim=1)
            number = torch.cat([found, number], dim=1)
        likeness, place = block.topk(min(count, block.shape[1]), dim=1)
        found = number.gather(1, place)
    assert found is not None
    assert likeness is not None
    return found, likeness


def vote(near: NDArray, likeness: NDArray, Y: sp.csr_matrix, k: int) -> TopK:
    """Labels of the neighbours, averaged by their cosines; cosines below zero do not count."""
    weight = np.maximum(likeness, 1e-6)
    weight = weight / weight.sum(axis=1, keepdims=True)
    rows = np.repeat(np.arange(len(near)), near.shape[1])
    shape = (len(near), Y.shape[0])
    votes = sp.csr_matrix((weight.ravel(), (rows, near.ravel())), shape=shape) @ Y
    votes.data = np.clip(votes.data, 0, 1)
    return topk_of_csr(votes, k)
