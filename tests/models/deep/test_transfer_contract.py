"""The contract of all models, kept by HTTN and its rivals (tokens instead of rows of words)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from coattail.arrays import Ragged
from coattail.config import parse
from coattail.models.deep.transfer.transfer_models import build, load
from coattail.models.deep.transfer.transfer_params import TransferParams
from coattail.testing.model_contract import ModelContract

SMALL = {
    "epochs": 4,
    "batch": 16,
    "dim": 16,
    "hidden": 8,
    "embedding_dim": 12,
    "lr": 0.03,
    "lr_top": 0.03,
    "dropout": 0.0,
    "offset": True,
}


class TransferContract(ModelContract):
    settings: ClassVar[dict[str, Any]]

    def make(self) -> Any:
        return build(parse({**SMALL, **self.settings}, TransferParams, "test"))

    def load(self, folder: Path) -> Any:
        return load(folder)

    def inputs(self, X: sp.csr_matrix) -> Ragged:
        return Ragged(X.indptr.astype(np.int64), X.indices.astype(np.int32) + 2)

    # Not promised: torch adds up in another order with another number of threads.
    test_number_of_threads_changes_no_byte = None

    def fit(self, model: Any, X: sp.csr_matrix, Y: sp.csr_matrix) -> Any:
        threads = int(os.environ.get("COATTAIL_THREADS", "1"))
        return model.fit(self.inputs(X), Y, vocabulary_size=X.shape[1] + 2, threads=threads)


class TestHttn(TransferContract):
    # Six equal labels are no long tail: there is one only where a test adds labels. Joint, which
    # has none at all, differs from this only in leaving the prototypes out.
    settings: ClassVar[dict[str, Any]] = {"model": "httn", "head_count": 6}

    def uses(self, model: Any, folder: Path) -> list[Callable[[], Any]]:
        text = Ragged(np.array([0, 1]), np.array([2], np.int32))
        return [*super().uses(model, folder), lambda: model.add_label("new", text)]


class TestBbn(TransferContract):
    settings: ClassVar[dict[str, Any]] = {"model": "bbn"}


class TestOltr(TransferContract):
    settings: ClassVar[dict[str, Any]] = {"model": "oltr", "memory_epochs": 4}


class TestLtmcp(TransferContract):
    settings: ClassVar[dict[str, Any]] = {"model": "ltmcp", "head_share": 0.5}


class TestDxml(TransferContract):
    settings: ClassVar[dict[str, Any]] = {"model": "dxml", "walks": 4, "walk_length": 10}
