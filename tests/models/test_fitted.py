"""Models that are used before they are trained; the contract suite asks most of them."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

from coattail.arrays import TopK
from coattail.errors import ModelError
from coattail.models.fitted import Fitted
from coattail.models.ranking.ensemble import Ensemble, EnsembleParams
from coattail.models.ranking.rerank import Reranker, RerankParams

RANKING = TopK(np.zeros((2, 1), np.int32), np.ones((2, 1), np.float32), "probability")


def test_an_ensemble_says_that_it_is_not_trained(tmp_path: Path) -> None:
    model = Ensemble(EnsembleParams(first="a", second="b"))
    for use in (lambda: model.predict(RANKING, RANKING, 1), lambda: model.save(tmp_path / "model")):
        with pytest.raises(ModelError, match=r"Ensemble is not trained.*call its fit"):
            use()
    assert not list(tmp_path.iterdir())


def test_a_reranker_says_that_it_is_not_trained(tmp_path: Path) -> None:
    model = Reranker(RerankParams(base="a", strategy="propensity"))
    for use in (lambda: model.predict(RANKING, 1), lambda: model.save(tmp_path / "model")):
        with pytest.raises(ModelError, match=r"Reranker is not trained.*call its fit"):
            use()
    assert not list(tmp_path.iterdir())


class Model(Fitted):
    """Has one attribute from training."""

    def fit(self) -> None:
        self.weights_ = 3


def test_other_missing_attributes_are_misspelt_and_what_is_there_is_given() -> None:
    model = Model()
    with pytest.raises(AttributeError, match="Model has no attribute 'weight'"):
        model.weight  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(model, "weights_")
    model.fit()
    assert copy.deepcopy(model).weights_ == 3
