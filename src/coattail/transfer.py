"""HTTN without the network: prototypes, the transfer from prototypes to classifiers, attention.

A head label has many texts, so its classifier (a row of M) can be learned. A label's prototype is
the mean of a few of its texts' vectors. A matrix W learned on head labels turns a prototype into a
classifier row; applied to a tail label's prototype it gives a classifier for a label with a handful
of texts (Xiao et al. 2021). `coattail.deep.httn` holds the network that makes the vectors.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import Field, model_validator

from coattail.config import Params
from coattail.labels import counts as count_labels

Floats = NDArray[np.float64]


class TransferParams(Params):
    """A variant of the section ``transfer``."""

    model: Literal["httn", "joint", "imprinting"] = Field(
        "httn",
        description="httn; joint: all labels learned together; imprinting: prototypes as rows",
    )
    # --- labels and prototypes
    head_share: float = Field(
        0.6, gt=0.0, le=1.0, description="share of the labels, most frequent first, in the head"
    )
    head_count: int | None = Field(
        None, ge=1, description="number of head labels, instead of head_share"
    )
    t: int = Field(5, ge=1, description="texts sampled for a prototype")
    sets: int = Field(30, ge=1, le=1000, description="prototypes per head label (S)")
    # --- transfer
    learner: Literal["gradient", "ridge"] = Field(
        "gradient", description="how W is found: Adam as in the paper, or in closed form"
    )
    transfer_epochs: int = Field(8, ge=1, description="gradient: passes over the sets")
    transfer_lr: float = Field(0.01, gt=0.0, description="gradient: step size")
    ridge: float = Field(0.01, gt=0.0, description="ridge: penalty, relative to a mean prototype")
    attention: bool = Field(True, description="mix a tail prototype with those of head labels")
    sharpness: float = Field(
        1.0, gt=0.0, description="factor on the similarities of the attention (the paper's: 1)"
    )
    finetune: bool = Field(False, description="train everything on the sampled tail texts")
    finetune_epochs: int = Field(2, ge=1, description="passes over the sampled tail texts")
    finetune_lr: float = Field(1e-4, gt=0.0, description="step size of the fine-tuning")
    ensemble: int = Field(
        1, ge=1, le=100, description="samplings of tail texts whose scores are averaged (G)"
    )
    # --- the text encoder
    dim: int = Field(128, ge=1, description="size of a text's vector (d)")
    hidden: int = Field(64, ge=1, description="LSTM units per direction")
    embedding_dim: int = Field(100, ge=1, description="size of word vectors if none are given")
    embedding_start: Literal["random", "labels"] = Field(
        "labels", description="without given vectors: random, or the words' label profiles (SVD)"
    )
    max_tokens: int = Field(128, ge=1, description="a text is cut after so many words")
    dropout: float = Field(0.2, ge=0.0, lt=1.0, description="share of word vector entries dropped")
    scale: float = Field(10.0, gt=0.0, description="length of a text's vector at the start")
    # --- training of the head classifier
    epochs: int = Field(8, ge=1, description="passes over the texts with a head label")
    batch: int = Field(64, ge=1, description="texts per step")
    lr: float = Field(2e-3, gt=0.0, description="step size of word vectors and LSTM")
    lr_top: float = Field(1e-2, gt=0.0, description="step size of everything above the LSTM")
    beta2: float = Field(0.99, ge=0.0, lt=1.0, description="Adam's memory of squared gradients")
    valid_texts: int = Field(1000, ge=1, description="validation texts, drawn at random")
    predict_batch: int = Field(128, ge=1, description="texts per step when predicting")
    seed: int = Field(0, ge=0, description="of weights, order, samples")

    @model_validator(mode="after")
    def _one_network_per_ensemble(self) -> TransferParams:
        if self.ensemble > 1 and self.finetune:
            raise ValueError("fine-tuning changes the network, an ensemble shares it: use one")
        return self


class Sample(NamedTuple):
    """Some texts of several labels; those of the j-th are ``rows[indptr[j]:indptr[j + 1]]``."""

    indptr: NDArray[np.int64]
    rows: NDArray[np.int64]


def split_labels(
    Y: sp.csr_matrix, params: TransferParams
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Head and tail labels, ascending; a label without a text is in neither.

    Equal counts are ordered by id, and the head always has at least one label.
    """
    counts = count_labels(Y)
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    share = int(np.floor(params.head_share * Y.shape[1] + 1e-9))
    size = share if params.head_count is None else params.head_count
    if params.model == "joint":
        size = len(order)
    size = max(size, 1)
    return np.sort(order[:size]), np.sort(order[size:])


def sample_texts(Y: sp.csr_matrix, labels: NDArray, t: int, rng: np.random.Generator) -> Sample:
    """At most ``t`` different texts of every label, at random."""
    members = sp.csc_matrix(Y)[:, labels]
    sizes = np.diff(members.indptr)
    column = np.repeat(np.arange(len(labels)), sizes)
    order = np.lexsort((rng.random(len(column)), column))
    place = np.arange(len(column)) - np.repeat(members.indptr[:-1], sizes)
    rows = members.indices[order][place < t].astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(np.minimum(sizes, t))]).astype(np.int64)
    return Sample(indptr, rows)


def prototypes(vectors: NDArray, sample: Sample) -> Floats:
    """Mean of the sampled unit vectors of each label, brought back to unit length.

    Parameters
    ----------
    vectors : float (n, d)
        Text vectors of unit length.
    sample : Sample
        Rows of ``vectors`` per label.

    Returns
    -------
    float64 (labels, d); zeros for a label without a text.
    """
    shape = (len(sample.indptr) - 1, len(vectors))
    pick = sp.csr_matrix((np.ones(len(sample.rows)), sample.rows, sample.indptr), shape=shape)
    return unit(np.asarray(pick @ np.asarray(vectors, np.float64)))


def unit(vectors: Floats) -> Floats:
    """Rows of length one; a zero row stays zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def learn_transfer(P: Floats, M: Floats, params: TransferParams) -> Floats:
    """W (d, d) with ``W p ~ m`` for prototypes P (sets, labels, d) of rows M (labels, d)."""
    if params.learner == "ridge":
        return ridge_transfer(P, M, params.ridge)
    rng = np.random.default_rng([params.seed, 3])
    return descend_transfer(P, M, params.transfer_lr, params.transfer_epochs, rng)


def ridge_transfer(P: Floats, M: Floats, strength: float) -> Floats:
    """The W that minimises ``mean |W p - m|^2 + strength |W|^2`` over all sets and labels."""
    sets, labels, d = P.shape
    flat = P.reshape(sets * labels, d)
    gram = flat.T @ flat / len(flat) + strength * np.eye(d)
    cross = P.mean(axis=0).T @ M / labels  # (d of p, d of m)
    return np.asarray(np.linalg.solve(gram, cross).T)


def descend_transfer(
    P: Floats, M: Floats, lr: float, epochs: int, rng: np.random.Generator
) -> Floats:
    """The same loss without penalty by Adam: one step per set of prototypes, epochs passes."""
    d = P.shape[2]
    W = rng.uniform(-1, 1, (d, d)) / np.sqrt(d)
    first, second = np.zeros_like(W), np.zeros_like(W)
    beta1, beta2, step = 0.9, 0.99, 0
    for _ in range(epochs):
        for p in P:
            step += 1
            gradient = 2 / M.size * (p @ W.T - M).T @ p
            first = beta1 * first + (1 - beta1) * gradient
            second = beta2 * second + (1 - beta2) * gradient**2
            mean, square = first / (1 - beta1**step), second / (1 - beta2**step)
            W = W - lr * mean / (np.sqrt(square) + 1e-8)
    return W


def attend(p: Floats, P: Floats, sharpness: float = 1.0) -> Floats:
    """Head prototypes weighted by their likeness to each tail prototype.

    ``alpha = softmax_j(sharpness * p_z . p_j)``, ``sum_j alpha_j p_j``, averaged over the sets.

    Parameters
    ----------
    p : float (tail, d)
    P : float (sets, head, d)
    """
    total = np.zeros_like(p)
    for heads in P:
        likeness = sharpness * (p @ heads.T)
        weight = np.exp(likeness - likeness.max(axis=1, keepdims=True))
        total += (weight / weight.sum(axis=1, keepdims=True)) @ heads
    return total / len(P)


def tail_rows(p: Floats, P: Floats, W: Floats, params: TransferParams) -> Floats:
    """Classifier rows (tail, d) of tail prototypes p (tail, d)."""
    if params.attention:
        p = (attend(p, P, params.sharpness) + p) / 2
    return p @ W.T
