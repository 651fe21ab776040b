"""What a network learns from, and how its fitting runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import Ragged, as_csr
from coattail.labels.tree import Tree
from coattail.models.deep import batching

# Called with the numbers of an epoch and the epoch's number.
Log = Callable[[dict[str, float], int], None]

Inputs = TypeVar("Inputs", bound=Ragged | Sequence[str])
"""Texts as a model reads them: token ids, or the texts themselves."""


@dataclass(frozen=True, eq=False)
class FitData(Generic[Inputs]):
    """What a network learns from. A model ignores what it has no use for."""

    inputs: Inputs  # n texts, as the model ``reads`` them
    Y: sp.csr_matrix  # (n, L), the labels of these texts
    valid: tuple[Inputs, sp.csr_matrix] | None = None  # texts that choose weights and early stop
    vocabulary_size: int = 0  # V, the number of token ids, padding (0) and unknown (1) included
    vectors: NDArray | None = None  # (V, d), word vectors to start from
    trees: Sequence[Tree] = ()  # over the L labels
    label_names: Sequence[str] | None = None  # L
    propensity: tuple[float, float] = (0.55, 1.5)  # the dataset's constants A and B

    def checked(self) -> FitData[Inputs]:
        """With labels in canonical form; DataError if labels and texts do not fit."""
        Y, valid = as_csr(self.Y, "Y"), self.valid
        batching.check_labels(_count(self.inputs), Y, "training texts")
        if valid is not None:
            valid = (valid[0], as_csr(valid[1], "Y of validation"))
            batching.check_labels(_count(valid[0]), valid[1], "validation texts")
        return replace(self, Y=Y, valid=valid)

    def named(self) -> dict[str, Any]:
        """All that a training depends on besides params and trees, by the names in messages."""
        kind = "tokens" if isinstance(self.inputs, Ragged) else "texts"
        inputs, labels = self.valid or (None, None)
        found = {kind: self.inputs, "labels": self.Y}
        found |= {f"validation {kind}": inputs, "validation labels": labels}
        if kind == "tokens":
            found |= {"size of the vocabulary": self.vocabulary_size, "word vectors": self.vectors}
        return found | {"propensity": self.propensity}


def checked_tokens(data: FitData[Ragged]) -> FitData[Ragged]:
    """``data.checked()`` for a model over tokens, whose ids have to name words."""
    data = data.checked()
    batching.check_tokens(data.inputs, data.vocabulary_size, "training texts")
    if data.valid is not None:
        batching.check_tokens(data.valid[0], data.vocabulary_size, "validation texts")
    if data.vectors is not None:
        batching.check_vectors(data.vectors, data.vocabulary_size)
    return data


def _count(inputs: Ragged | Sequence[str]) -> int:
    return inputs.n if isinstance(inputs, Ragged) else len(inputs)


@dataclass(frozen=True)
class RunContext:
    """How a fitting runs. Apart from the device nothing here changes what is learned."""

    device: str = "cpu"  # a name for ``device.resolve``
    threads: int = 0  # CPU threads; 0: torch's choice
    log: Log | None = None  # draws the training curve; an exception from it stops the training
    # What an interrupted fit goes on from; the caller removes it with ``checkpoint.forget`` once
    # the model is saved.
    checkpoint: Path | None = None
