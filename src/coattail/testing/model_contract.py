"""The contract every model keeps, as one suite: subclass ModelContract, say how to make a model.

    class TestOvr(ModelContract):
        def make(self): return Ovr(OvrParams())
        def load(self, folder): return Ovr.load(folder)

A model that does not read CSR rows overrides ``inputs``; one whose ``fit`` wants more, ``fit``; for
networks `network_contract` does both. The suite of a plugin is such a class in a test file of its
own (docs/how-to/plugin.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.arrays import TopK
from coattail.errors import ModelError
from coattail.models.find_kind import name_in

FEW = 60  # texts, where a test is not about learning


def separable(
    n: int = 240, n_labels: int = 6, seed: int = 0
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Label j is there exactly when word j is; ten more words mean nothing. Unit rows."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((n, n_labels), np.float32)
    Y[np.arange(n), rng.integers(0, n_labels, n)] = 1
    second = rng.random(n) < 0.3
    Y[np.flatnonzero(second), rng.integers(0, n_labels, second.sum())] = 1
    noise = (rng.random((n, 10)) < 0.2).astype(np.float32)
    X = np.hstack([Y, noise])
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return sp.csr_matrix(X), sp.csr_matrix(Y)


def digest(folder: Path) -> dict[str, str]:
    """Content of every file of a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def same(a: TopK, b: TopK) -> bool:
    return (
        a.kind == b.kind
        and np.array_equal(a.labels, b.labels)
        and np.array_equal(a.scores, b.scores)
    )


@dataclass
class FittedModel:
    """A model fitted on ``separable()``, once for all tests of its class: none may change it."""

    model: Any
    returned: Any  # by its fit
    X: sp.csr_matrix
    Y: sp.csr_matrix
    before: list[np.ndarray]  # the arrays of X and Y as they were


def arrays(*matrices: sp.csr_matrix) -> list[np.ndarray]:
    return [array for M in matrices for array in (M.indptr, M.indices, M.data)]


class ModelContract:
    """Tests that every model must pass.

    A fit is what costs here. A test that only asks a fitted model takes ``fitted``; one that fits
    on data of its own without asking how well takes few texts (``FEW``).
    """

    def make(self) -> Any:
        raise NotImplementedError

    def load(self, folder: Path) -> Any:
        raise NotImplementedError

    def inputs(self, X: sp.csr_matrix) -> Any:
        """What the model reads, made from rows over words."""
        return X

    def fit(self, model: Any, X: sp.csr_matrix, Y: sp.csr_matrix) -> Any:
        return model.fit(self.inputs(X), Y)

    def uses(self, model: Any, folder: Path) -> list[Callable[[], Any]]:
        """Everything that needs a trained model."""
        inputs = self.inputs(separable(5)[0])
        return [lambda: model.predict(inputs, 3), lambda: model.save(folder)]

    def test_what_needs_training_says_so_before_it(self, tmp_path):
        model = self.make()
        for use in self.uses(model, tmp_path / "model"):
            with pytest.raises(ModelError, match=f"{type(model).__name__} is not trained.*fit"):
                use()
        assert not list(tmp_path.iterdir())

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls) -> FittedModel:
        X, Y = separable()
        before = [array.copy() for array in arrays(X, Y)]
        contract = cls()
        model = contract.make()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COATTAIL_THREADS", "1")
            returned = contract.fit(model, X, Y)
        return FittedModel(model, returned, X, Y, before)

    def test_fit_returns_the_model(self, fitted):
        assert fitted.returned is fitted.model

    def test_separable_labels_are_learned(self, fitted):
        top = fitted.model.predict(self.inputs(fitted.X), 1)
        hits = fitted.Y.toarray()[np.arange(fitted.Y.shape[0]), top.labels[:, 0]]
        assert hits.mean() > 0.95

    def test_ranking_keeps_the_promises_of_topk(self, fitted):
        top = fitted.model.predict(self.inputs(fitted.X), 4)
        top.validate(fitted.Y.shape[1])
        assert top.labels.dtype == np.int32
        assert top.scores.dtype == np.float32
        real = top.labels >= 0
        if top.kind == "probability":
            assert np.all((top.scores[real] >= 0) & (top.scores[real] <= 1))
        ties = (top.scores[:, 1:] == top.scores[:, :-1]) & real[:, 1:]
        assert np.all(top.labels[:, 1:][ties] > top.labels[:, :-1][ties])

    def test_row_is_padded_when_k_exceeds_the_labels(self):
        X, Y = separable(FEW, n_labels=3)
        top = self.fit(self.make(), X, Y).predict(self.inputs(X), 9)
        assert top.labels.shape == top.scores.shape == (X.shape[0], 9)
        assert np.all(top.labels[:, 3:] == -1)
        assert np.all(np.isneginf(top.scores[:, 3:]))

    def test_no_label_is_given_twice(self, fitted):
        top = fitted.model.predict(self.inputs(fitted.X), 6)
        for row in top.labels:
            real = row[row >= 0]
            assert len(set(real.tolist())) == len(real)

    def test_saved_model_says_which_kind_it_is(self, fitted, tmp_path):
        fitted.model.save(tmp_path / "model")
        assert name_in(tmp_path / "model") == fitted.model.params.model

    def test_saved_model_answers_the_same_bits(self, fitted, tmp_path):
        fitted.model.save(tmp_path / "model")
        assert same(
            fitted.model.predict(self.inputs(fitted.X), 5),
            self.load(tmp_path / "model").predict(self.inputs(fitted.X), 5),
        )

    def test_saving_a_loaded_model_gives_the_same_files(self, fitted, tmp_path):
        fitted.model.save(tmp_path / "first")
        self.load(tmp_path / "first").save(tmp_path / "second")
        assert digest(tmp_path / "first") == digest(tmp_path / "second")

    def test_same_seed_gives_the_same_bytes(self, fitted, tmp_path):
        fitted.model.save(tmp_path / "first")
        self.fit(self.make(), fitted.X, fitted.Y).save(tmp_path / "second")
        assert digest(tmp_path / "first") == digest(tmp_path / "second")

    def test_number_of_threads_changes_no_byte(self, fitted, tmp_path, monkeypatch):
        # The shared model was fitted on one thread.
        monkeypatch.setenv("COATTAIL_THREADS", "1")
        alone = fitted.model.predict(self.inputs(fitted.X), 4)
        monkeypatch.setenv("COATTAIL_THREADS", "3")
        model = self.fit(self.make(), fitted.X, fitted.Y)
        fitted.model.save(tmp_path / "1")
        model.save(tmp_path / "3")
        assert digest(tmp_path / "1") == digest(tmp_path / "3")
        assert same(alone, model.predict(self.inputs(fitted.X), 4))

    def test_input_is_left_untouched(self, fitted):
        fitted.model.predict(self.inputs(fitted.X), 3)
        after = arrays(fitted.X, fitted.Y)
        assert all(np.array_equal(a, b) for a, b in zip(fitted.before, after, strict=True))

    def test_empty_rows_are_trained_and_ranked(self):
        X, Y = separable(FEW)
        X = sp.vstack([X, sp.csr_matrix((3, X.shape[1]), dtype=np.float32)], format="csr")
        Y = sp.vstack([Y, Y[:2], sp.csr_matrix((1, Y.shape[1]), dtype=np.float32)], format="csr")
        top = self.fit(self.make(), X, Y).predict(self.inputs(X), 2)
        top.validate(Y.shape[1])
        assert top.labels.shape == (X.shape[0], 2)

    def test_label_without_a_training_text_does_no_harm(self):
        X, Y = separable()
        wide = sp.hstack([Y, sp.csr_matrix((Y.shape[0], 2), dtype=np.float32)], format="csr")
        top = self.fit(self.make(), X, wide).predict(self.inputs(X), 1)
        assert wide.toarray()[np.arange(len(top.labels)), top.labels[:, 0]].mean() > 0.95

    def test_labels_with_one_text_and_with_all_texts_are_trained(self):
        X, Y = separable()
        extra = np.zeros((Y.shape[0], 2), np.float32)
        extra[5, 0] = 1
        extra[:, 1] = 1
        wide = sp.hstack([Y, sp.csr_matrix(extra)], format="csr")
        top = self.fit(self.make(), X, wide).predict(self.inputs(X), wide.shape[1])
        top.validate(wide.shape[1])
        assert np.mean([7 in row for row in top.labels[:, :3]]) > 0.9

    def test_one_label_is_enough(self):
        X, Y = separable(FEW, n_labels=2)
        top = self.fit(self.make(), X, sp.csr_matrix(Y[:, :1])).predict(self.inputs(X), 2)
        assert set(top.labels[:, 0].tolist()) <= {0, -1}
        assert np.all(top.labels[:, 1] == -1)

    def test_one_text_is_enough_to_train_on(self):
        X, Y = separable()
        top = self.fit(self.make(), X[:1], Y[:1]).predict(self.inputs(X[:1]), 1)
        assert top.labels[0, 0] in Y[0].indices

    def test_one_text_is_ranked_as_in_a_batch(self, fitted):
        batch = fitted.model.predict(self.inputs(fitted.X), 3)
        for i in (0, 17):
            one = fitted.model.predict(self.inputs(fitted.X[i : i + 1]), 3)
            assert np.array_equal(one.labels[0], batch.labels[i])
            np.testing.assert_allclose(one.scores[0], batch.scores[i], rtol=1e-5)

    def test_duplicate_texts_get_the_same_answer(self):
        X, Y = separable(FEW)
        X, Y = sp.vstack([X, X], format="csr"), sp.vstack([Y, Y], format="csr")
        top = self.fit(self.make(), X, Y).predict(self.inputs(X), 3)
        assert np.array_equal(top.labels[:FEW], top.labels[FEW:])
        np.testing.assert_allclose(top.scores[:FEW], top.scores[FEW:], rtol=1e-5)

    def test_no_text_at_all_gives_an_empty_ranking(self, fitted):
        top = fitted.model.predict(self.inputs(fitted.X[:0]), 3)
        assert top.labels.shape == (0, 3)

    def test_missing_folder_is_a_clear_error(self, tmp_path):
        from coattail.errors import CoattailError

        with pytest.raises(CoattailError, match="missing"):
            self.load(tmp_path / "nothing")
