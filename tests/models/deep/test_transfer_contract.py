"""The contract of all models, kept by HTTN and its rivals (tokens instead of rows of words)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from coattail.arrays import Ragged
from coattail.config import parse
from coattail.models.deep.training import checkpoint
from coattail.models.deep.transfer.transfer_models import build, load
from coattail.models.deep.transfer.transfer_params import TransferParams
from coattail.testing.model_contract import FEW, digest, same, separable
from coattail.testing.network_contract import NetworkContract, fit

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


class Killed(Exception):
    """Ends a training."""


class TransferContract(NetworkContract):
    settings: ClassVar[dict[str, Any]]
    courses: ClassVar[tuple[str, ...]] = ("epochs",)  # params that say how long it trains

    def make(self) -> Any:
        return build(parse({**SMALL, **self.settings}, TransferParams, "test"))

    def load(self, folder: Path) -> Any:
        return load(folder)

    # Not promised: torch adds up in another order with another number of threads.
    test_number_of_threads_changes_no_byte = None

    def fit_few(self, **given: Any) -> Any:
        """A model with dropout, fitted on few texts; ``given`` are params and fields of a fit."""
        X, Y = separable(FEW)
        known = type(self.make().params).model_fields
        params = {name: given.pop(name) for name in list(given) if name in known}
        made = build(
            parse({**SMALL, "dropout": 0.2, **self.settings, **params}, TransferParams, "")
        )
        usual = {"vocabulary_size": X.shape[1] + 2, "threads": 1}
        return fit(made, self.inputs(X), Y, **(usual | given))

    def test_a_training_that_is_interrupted_again_and_again_ends_with_the_same_bytes(
        self, tmp_path: Path
    ) -> None:
        X, Y = separable(30, seed=1)
        valid = (self.inputs(X), Y)
        curve: dict[int, float] = {}
        whole: dict[int, float] = {}

        def log(numbers: dict[str, float], epoch: int) -> None:
            curve[epoch] = numbers["loss"]
            if epoch in stops:
                stops.remove(epoch)
                raise Killed

        stops = {1, 2, 5}
        for _ in range(4):
            with suppress(Killed):
                model = self.fit_few(valid=valid, checkpoint=tmp_path / "some.ckpt", log=log)
        assert stops <= {5}  # where there is a second training, it was interrupted, too
        assert list(tmp_path.glob("some.*.ckpt"))
        loss = lambda numbers, epoch: whole.update({epoch: numbers["loss"]})  # noqa: E731
        self.fit_few(valid=valid, log=loss).save(tmp_path / "whole")
        model.save(tmp_path / "resumed")
        assert digest(tmp_path / "whole") == digest(tmp_path / "resumed")
        assert curve == whole
        checkpoint.forget(tmp_path / "some.ckpt")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["resumed", "whole"]

    def test_a_training_without_progress_stops_early_with_its_best_epoch(self) -> None:
        X, Y = separable(30, seed=1)
        noise = sp.csr_matrix(Y[np.random.default_rng(0).permutation(30)])
        seen: list[float] = []

        def log(numbers: dict[str, float], epoch: int) -> None:
            assert epoch == len(seen)
            seen.append(next(v for key, v in numbers.items() if key.startswith("valid_")))

        epochs = dict.fromkeys(self.courses, 20)
        stopped = self.fit_few(patience=1, **epochs, valid=(self.inputs(X), noise), log=log)
        assert len(seen) < sum(epochs.values())
        best = len(seen) - 3  # two evaluations were no better
        assert seen[best] >= max(seen[best + 1 :])
        if self.settings["model"] in ("httn", "ltmcp", "dxml"):  # as long as that, and no longer
            until = self.fit_few(epochs=best + 1, valid=(self.inputs(X), noise))
            assert same(stopped.predict(self.inputs(X), 5), until.predict(self.inputs(X), 5))


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
    courses = ("epochs", "memory_epochs")
    settings: ClassVar[dict[str, Any]] = {"model": "oltr", "memory_epochs": 4}


class TestLtmcp(TransferContract):
    settings: ClassVar[dict[str, Any]] = {"model": "ltmcp", "head_share": 0.5}


class TestDxml(TransferContract):
    settings: ClassVar[dict[str, Any]] = {"model": "dxml", "walks": 4, "walk_length": 10}
