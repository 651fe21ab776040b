"""Explains linear models: the words that raise a label's score, and the norms of classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.errors import ModelError
from coattail.models.linear.linear_models import Blocks
from coattail.models.linear.ovr import Ovr
from coattail.models.linear.plt import Plt

Words = list[tuple[int, float]]
PIECE = 2**24  # weights squared at a time


def contributions(
    model: Any, x: sp.csr_matrix, labels: NDArray | list[int], n: int
) -> list[Words] | None:
    """The words of a text that raise the margins of some labels most.

    Parameters
    ----------
    model : a linear model; None is returned for one without a classifier per label (fastxml)
    x : CSR (1, words), the text as the model reads it
    labels : the labels asked for
    n : words per label at most

    Returns
    -------
    For each label its words with ``x_j w_lj`` > 0, strongest first, equal ones by id. Of a label
    tree it is the classifier at the label's leaf in the first tree.
    """
    x, wanted = sp.csr_matrix(x), np.asarray(labels, np.int64)
    if x.shape[0] != 1:
        raise ModelError(f"contributions are of one text, got {x.shape[0]} rows")
    found = _parts(model, x, wanted)
    if found is None:
        return None
    return [_strongest(x.indices, column, n) for column in found.T]


def norms(model: Any) -> NDArray[np.float64] | None:
    """Euclidean norm of every label's classifier, (L,); 0 for a label without one."""
    if isinstance(model, Ovr):
        return np.sqrt(_squares(model.W_.indices, model.W_.data, model.W_.shape[1]))
    if isinstance(model, Plt):
        return _leaf_norms(model)
    if isinstance(model, Blocks):
        inside = [norms(part) for part in model.models_]
        whole = np.zeros(model.n_labels_)
        for labels, part in zip(model.labels_, inside, strict=True):
            if part is None:
                return None
            whole[labels] = part
        return whole
    return None


def _squares(place: NDArray, weight: NDArray, size: int) -> NDArray[np.float64]:
    """Sums of squares by place, (size,), in pieces: memory-mapped weights stay on disk."""
    total = np.zeros(size)
    for start in range(0, len(weight), PIECE):
        piece = slice(start, start + PIECE)
        total += np.bincount(place[piece], np.square(weight[piece], dtype=np.float64), size)
    return total


def _parts(model: Any, x: sp.csr_matrix, wanted: NDArray) -> NDArray[np.float64] | None:
    """``x_j w_lj`` of every word of the text and wanted label, (words of x, labels)."""
    if isinstance(model, Ovr):
        weights = model.W_[x.indices][:, wanted].toarray().astype(np.float64)
        return weights * x.data[:, None]
    if isinstance(model, Plt):
        columns = [_leaf_weights(model, int(label), x.indices) for label in wanted]
        weights = np.stack(columns, axis=1) if columns else np.zeros((x.nnz, 0))
        return weights * x.data[:, None]
    if isinstance(model, Blocks):
        return _block_parts(model, x, wanted)
    return None


def _block_parts(model: Blocks, x: sp.csr_matrix, wanted: NDArray) -> NDArray[np.float64] | None:
    whole = np.zeros((x.nnz, len(wanted)))
    for labels, part in zip(model.labels_, model.models_, strict=True):
        place = np.full(model.n_labels_, -1, np.int64)
        place[labels] = np.arange(len(labels))
        own = np.flatnonzero(place[wanted] >= 0)
        inside = _parts(part, x, place[wanted[own]])
        if inside is None:
            return None
        whole[:, own] = inside
    return whole


def _strongest(words: NDArray, values: NDArray[np.float64], n: int) -> Words:
    order = np.lexsort((words, -values))[:n]
    return [(int(words[i]), float(values[i])) for i in order if values[i] > 0]


def _leaf_weights(model: Plt, label: int, words: NDArray) -> NDArray[np.float64]:
    """Weights of some words in the classifier of a label, at its leaf in the first tree."""
    tree, weights = model.trees_[0], model.weights_[0]
    dense = np.zeros(model.n_words_)
    node = int(tree.leaf[label])
    if node < 0:
        return dense[words]
    position = int(np.flatnonzero(tree.labels_of(node) == label)[0])
    output = len(tree.children_of(node)) + position
    first, last = weights.node_word[node], weights.node_word[node + 1]
    entries = weights.entry[first : last + 1]
    own = np.flatnonzero(weights.child[entries[0] : entries[-1]] == output) + entries[0]
    slot = np.searchsorted(entries, own, side="right") - 1
    dense[weights.words[first + slot]] = weights.weight[own]
    return dense[words]


def _leaf_norms(model: Plt) -> NDArray[np.float64]:
    tree, weights = model.trees_[0], model.weights_[0]
    per_node = np.diff(weights.entry[weights.node_word])  # entries of every node
    output = np.repeat(weights.output[:-1], per_node) + weights.child
    by_output = np.sqrt(_squares(output, weights.weight, int(weights.output[-1])))
    order = tree.label_order
    node = tree.leaf[order]
    n_children = tree.first_child[node + 1] - tree.first_child[node]
    place = np.arange(len(order)) - tree.first_label[node]
    norms = np.zeros(tree.n_labels)
    norms[order] = by_output[weights.output[node] + n_children + place]
    return norms
