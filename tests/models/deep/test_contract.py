"""The contract of all models, kept by the deep ones (tokens instead of rows of words)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from coattail.config import parse
from coattail.labels.tree import Tree
from coattail.models.deep.deep_models import build, load
from coattail.models.deep.deep_params import DeepParams
from coattail.testing.network_contract import NetworkContract

SMALL = {
    "epochs": 8,
    "batch": 16,
    "embedding_dim": 12,
    "lr": 0.03,
    "dropout": 0.0,
    "embedding_dropout": 0.0,
    "swa_from": 6,
}


class DeepContract(NetworkContract):
    settings: ClassVar[dict[str, Any]]

    def make(self) -> Any:
        return build(parse({**SMALL, **self.settings}, DeepParams, "test"))

    def load(self, folder: Path) -> Any:
        return load(folder)

    def uses(self, model: Any, folder: Path) -> list[Callable[[], Any]]:
        explain = lambda: model.explain(np.array([2, 3]), [0])  # noqa: E731
        return [*super().uses(model, folder), explain]

    def more(self, Y: sp.csr_matrix) -> dict[str, Any]:
        return {"trees": trees(Y)}


def trees(Y: sp.csr_matrix) -> list[Tree]:
    """Two clusters: even and odd labels, without labels that no text has."""
    seen = np.asarray(Y.sum(axis=0)).ravel() > 0
    leaf = np.where(seen, np.arange(Y.shape[1]) % 2 + 1, -1)
    return [Tree(np.array([-1, 0, 0], np.int32), leaf.astype(np.int32))]


class TestAttentionXml(DeepContract):
    settings: ClassVar[dict[str, Any]] = {
        "model": "attentionxml",
        "hidden": 8,
        "fc": [8],
        "candidates": 0,
    }


class TestAttentionXmlWithCandidates(DeepContract):
    settings: ClassVar[dict[str, Any]] = {
        "model": "attentionxml",
        "hidden": 8,
        "fc": [8],
        "candidates": 4,
        "head_dim": 8,
    }


class TestAttentionXmlOverATree(DeepContract):
    settings: ClassVar[dict[str, Any]] = {
        "model": "attentionxml",
        "hidden": 8,
        "fc": [8],
        "candidates": 2,
        "tree": "pairs",
        "epochs": 14,
    }


class TestXmlCnn(DeepContract):
    settings: ClassVar[dict[str, Any]] = {
        "model": "xmlcnn",
        "filters": 8,
        "bottleneck": 16,
        "lr": 0.01,
    }


class TestBilstm(DeepContract):
    settings: ClassVar[dict[str, Any]] = {"model": "bilstm", "hidden": 8, "fc": [16]}
