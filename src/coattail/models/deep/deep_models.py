"""From settings to an untrained network, from a folder to a trained one, and what it looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coattail.errors import ModelError
from coattail.models import find_kind
from coattail.models.deep.deep_kinds import KINDS
from coattail.models.kinds import ModelKind

Words = list[tuple[Any, float]]


def kind_of(params: Any) -> ModelKind:
    """What the registry knows of a network with these settings."""
    return find_kind.named(params.model, KINDS, "train_deep")


def build(params: Any) -> Any:
    """The untrained model of ``params``: over a pre-trained encoder, a tree, or all labels."""
    return kind_of(params).build(params)


def load(folder: str | Path, device: str = "cpu") -> Any:
    """A saved model, on ``device`` (whatever it was trained on)."""
    return find_kind.load(folder, KINDS, "train_deep", device)


def explain_tokens(model: Any, ids: NDArray, labels: list[int], n: int) -> list[Words] | None:
    """The words of a text, as token ids, that a network over them attends to for each label."""
    return [_heaviest(ids, weights, n) for weights in _attention(model, ids, labels)] or None


def explain_text(model: Any, text: str, labels: list[int], n: int) -> list[Words] | None:
    """The same of a network over a pre-trained encoder, in the words of the encoder."""
    pieces = np.array(model.pieces(text))
    return [_heaviest(pieces, weights, n) for weights in _attention(model, text, labels)] or None


def _attention(model: Any, text: Any, labels: list[int]) -> list[NDArray[np.float32]]:
    """Weights over the words of a text per label; none at all if the first label has none."""
    found: list[NDArray[np.float32]] = []
    for label in labels:
        try:
            found.append(model.explain(text, [label])[0])
        except ModelError:  # a label that no training text has: others may have some
            if not found:
                return []
            found.append(np.zeros(0, np.float32))
    return found


def _heaviest(words: NDArray, weights: NDArray, n: int) -> Words:
    """A word that stands several times counts with the sum of its weights."""
    kept, place = np.unique(words[: len(weights)], return_inverse=True)
    total = np.bincount(place, weights, minlength=len(kept))
    order = np.lexsort((kept, -np.round(total, 4)))[:n]
    return [(kept[i].item(), float(total[i])) for i in order]
