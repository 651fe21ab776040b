"""The contract for models whose ``fit`` takes FitData and RunContext: train_deep and transfer.

    class TestMine(NetworkContract):
        def make(self): return Mine(MineParams(epochs=20))
        def load(self, folder): return Mine.load(folder)

The words of a text are token ids, in no order that matters. A model that reads texts says so by
``reads``.
"""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import numpy as np
import scipy.sparse as sp

from coattail.arrays import Ragged
from coattail.models.deep.fit_data import FitData, RunContext
from coattail.testing.model_contract import ModelContract

OF_CONTEXT = {field.name for field in fields(RunContext)}
FIRST_WORD = 2  # ids below it are padding and unknown words


def fit(model: Any, inputs: Any, Y: Any, **given: Any) -> Any:
    """``model`` fitted; ``given`` are fields of FitData and RunContext."""
    context = {name: value for name, value in given.items() if name in OF_CONTEXT}
    data = {name: value for name, value in given.items() if name not in OF_CONTEXT}
    return model.fit(FitData(inputs, Y, **data), RunContext(**context))


class NetworkContract(ModelContract):
    """The contract over token ids, or over texts of the words w0, w1, ..."""

    def inputs(self, X: sp.csr_matrix) -> Any:
        if self.make().reads == "texts":
            rows = (X.indices[X.indptr[i] : X.indptr[i + 1]] for i in range(X.shape[0]))
            return [" ".join(f"w{word}" for word in row) for row in rows]
        return Ragged(X.indptr.astype(np.int64), X.indices.astype(np.int32) + FIRST_WORD)

    def more(self, Y: sp.csr_matrix) -> dict[str, Any]:
        """More fields of FitData that the model needs."""
        return {}

    def fit(self, model: Any, X: sp.csr_matrix, Y: sp.csr_matrix) -> Any:
        threads = int(os.environ.get("COATTAIL_THREADS", "1"))
        given = {"threads": threads, **self.more(Y)}
        if model.reads == "tokens":
            given["vocabulary_size"] = X.shape[1] + FIRST_WORD
        return fit(model, self.inputs(X), Y, **given)
