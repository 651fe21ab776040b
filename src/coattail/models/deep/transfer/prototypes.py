"""The arithmetic of HTTN: prototypes, the matrix that turns them into classifiers, attention.

A head label has many texts, so its classifier (a row of M) can be learned. A label's prototype is
the mean of a few of its texts' vectors. A matrix W learned on head labels turns a prototype into a
classifier row; applied to a tail label's prototype it gives a classifier for a label with a handful
of texts (Xiao et al. 2021). `httn` beside this file holds the network that makes the vectors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.labels.frequency import counts as count_labels
from coattail.models.deep.transfer.transfer_params import HeadTailParams, PrototypeParams

Floats = NDArray[np.float64]


class Sample(NamedTuple):
    """Texts drawn for some labels: those of label j are ``rows[indptr[j]:indptr[j + 1]]``."""

    indptr: NDArray[np.int64]
    rows: NDArray[np.int64]


def split_labels(
    Y: sp.csr_matrix, params: HeadTailParams
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Head and tail labels, ascending; a label without a text is in neither.

    Equal counts are ordered by id, and the head always has at least one label.
    """
    counts = count_labels(Y)
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    share = int(np.floor(params.head_share * Y.shape[1] + 1e-9))
    size = share if params.head_count is None else params.head_count
    if isinstance(params, PrototypeParams) and params.tail_rows == "learned":
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


def learn_transfer(P: Floats, M: Floats, params: PrototypeParams) -> Floats:
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


def tail_rows(p: Floats, P: Floats, W: Floats, params: PrototypeParams) -> Floats:
    """Classifier rows (tail, d) of tail prototypes p (tail, d)."""
    if params.attention:
        p = (attend(p, P, params.sharpness) + p) / 2
    return p @ W.T
