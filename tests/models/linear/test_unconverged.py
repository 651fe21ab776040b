"""Solvers that end at their limit of rounds say so, count it, and change nothing by it."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.data.features import Block
from coattail.labels import tree_building
from coattail.labels.tree_params import BalancedTree, FlatTree
from coattail.models.linear.linear_models import build, fit_blocks, solver_figures
from coattail.models.linear.linear_params import (
    FastxmlParams,
    NearestParams,
    OvrParams,
    PltParams,
)

RNG = np.random.default_rng(1)
X = sp.csr_matrix(RNG.random((900, 30)).astype(np.float32))
Y = sp.csr_matrix((RNG.random((900, 9)) < 0.3).astype(np.float32))
EASY: dict[str, Any] = {"C": 0.01, "eps": 0.3, "max_epochs": 500}
HARD: dict[str, Any] = {"C": 100.0, "eps": 1e-4, "max_epochs": 1}
# A flat tree has one node whose nine outputs go in step; three outputs go alone, by active sets.
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "active sets": (OvrParams, {"negatives": 100, "max_rounds": 30}),
    "all rows at once": (OvrParams, {"negatives": 900}),
    "one-vs-rest, logistic": (OvrParams, {"loss": "logistic"}),
    "in step": (PltParams, {"max_visits": 900_000}),
    "nodes, logistic": (PltParams, {"loss": "logistic"}),
}


def fit(name: str, **settings: Any) -> Any:
    kind, own = MODELS[name]
    trees = tree_building.build(FlatTree(), X, Y) if kind is PltParams else None
    return build(kind(**(own | settings)), trees).fit(X, Y)


@pytest.mark.parametrize("name", MODELS)
def test_classifiers_short_of_their_tolerance_are_counted_and_told(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="coattail")
    assert solver_figures(fit(name, **EASY)) == {"unconverged": 0}
    assert not caplog.messages
    assert solver_figures(fit(name, **HARD)) == {"unconverged": 9}
    (message,) = caplog.messages
    assert "9 of 9 classifiers ended at their limit of rounds" in message
    assert "max_epochs" in message


def test_a_label_that_runs_out_of_rounds_is_counted() -> None:
    # One search for active rows cannot show that there are no others.
    few = {"negatives": 5, "max_rounds": 1, "C": 10.0}
    assert fit("active sets", **few).unconverged_ == 9


def test_blocks_add_up_and_models_without_a_solver_have_no_figure() -> None:
    blocks = [
        Block(name, X, sp.csr_matrix(Y[:, labels]), np.array(labels, np.int32))
        for name, labels in (("head", [0, 1, 2, 3]), ("tail", [4, 5, 6, 7, 8]))
    ]
    settings = MODELS["active sets"][1] | HARD
    joint = fit_blocks(OvrParams(**settings), None, blocks, 9)
    assert solver_figures(joint) == {"unconverged": 9}
    for params in (FastxmlParams(trees=2), NearestParams()):
        assert solver_figures(build(params).fit(X, Y)) == {}
        assert solver_figures(fit_blocks(params, None, blocks, 9)) == {}


def test_outputs_of_a_tree_are_counted_over_all_its_nodes() -> None:
    trees = tree_building.build(BalancedTree(leaf=3, trees=2), X, Y)
    model = build(PltParams(**HARD), trees).fit(X, Y)
    n_outputs = sum(tree.n_nodes - 1 + 9 for tree in trees)
    assert model.unconverged_ == n_outputs
