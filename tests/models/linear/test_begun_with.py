"""Every input of a resumable linear fit: parts that were begun with another one are not used."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.labels import tree_building
from coattail.labels.tree_params import BalancedTree
from coattail.models import begun_with
from coattail.models.linear import problem_groups
from coattail.models.linear.linear_models import build
from coattail.models.linear.linear_params import FastxmlParams, OvrParams, PltParams
from coattail.testing.model_contract import digest, separable

X, Y = separable(80)
FLIPPED = Y.copy()
FLIPPED.indices = FLIPPED.indices[::-1].copy()
FLIPPED.sort_indices()
FLIPPED.sum_duplicates()
FLIPPED.data[:] = 1
HALF = np.arange(Y.shape[1]) % 2 == 0
MODELS = {
    "ovr": OvrParams(weighting="pw", tail_c=2.0),
    "plt": PltParams(weighting="pw", tail_c=2.0),
    "fastxml": FastxmlParams(trees=3, propensity=True),
}
OTHERS: dict[str, dict[str, Any]] = {
    "params.C": {"C": 3.0},
    "params.propensity_a, params.propensity_b": {"propensity_a": 0.6, "propensity_b": 2.6},
    "texts": {"X": sp.csr_matrix(X * np.float32(0.5))},
    "labels": {"Y": FLIPPED},
    "trees": {"trees": tree_building.build(BalancedTree(leaf=2, seed=5), X, FLIPPED)},
    "tail": {"tail": ~HALF},
    "code": {"code": "another digest"},
    "format": {"format": begun_with.FORMAT + 1},
}
CASES = [
    (model, changed)
    for model in MODELS
    for changed in OTHERS
    if (changed != "trees" or model == "plt") and (changed != "tail" or model != "fastxml")
]


def fit(model: str, partial: Path | None, monkeypatch: pytest.MonkeyPatch, **other: Any) -> Any:
    monkeypatch.setattr(begun_with, "_code", other.pop("code", "this digest"))
    monkeypatch.setattr(begun_with, "FORMAT", other.pop("format", 1))
    trees = other.pop("trees", tree_building.build(BalancedTree(leaf=2), X, Y))
    rows, labels = other.pop("X", X), other.pop("Y", Y)
    tail = other.pop("tail", HALF)
    params = MODELS[model].model_copy(update=other)
    return build(params, trees, partial=partial, tail=tail).fit(rows, labels)


@pytest.mark.parametrize(("model", "changed"), CASES)
def test_a_changed_input_starts_anew_and_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    model: str,
    changed: str,
) -> None:
    partial = tmp_path / "partial"
    fit(model, partial, monkeypatch)
    assert list(partial.glob("*.npz"))
    with caplog.at_level(logging.WARNING, logger="coattail"):
        fit(model, partial, monkeypatch, **OTHERS[changed]).save(tmp_path / "model")
    (message,) = [one for one in caplog.messages if "starting anew" in one]
    assert message.endswith(f"was begun with other {changed}")
    fit(model, None, monkeypatch, **OTHERS[changed]).save(tmp_path / "whole")
    assert digest(tmp_path / "model") == digest(tmp_path / "whole")


@pytest.mark.parametrize("model", MODELS)
def test_the_same_inputs_go_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    model: str,
) -> None:
    partial = tmp_path / "partial"
    fit(model, partial, monkeypatch).save(tmp_path / "whole")
    fit(model, partial, monkeypatch)

    def never(*arguments: Any) -> Any:
        raise AssertionError("trained again")

    monkeypatch.setattr(problem_groups.Partial, "save", never)
    fit(model, partial, monkeypatch).save(tmp_path / "model")
    assert digest(tmp_path / "model") == digest(tmp_path / "whole")
    assert not [one for one in caplog.messages if "starting anew" in one]
