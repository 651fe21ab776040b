"""The contract of all models, kept by those over a pre-trained encoder (texts instead of rows)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from coattail.config import parse
from coattail.models.deep.deep_models import build, load
from coattail.models.deep.deep_params import DeepParams
from coattail.testing.network_contract import NetworkContract
from tests.tiny_bert import save_tiny_bert

pytest.importorskip("transformers", reason="needs the extra coattail[transformers]")

WORDS = [f"w{i}" for i in range(16)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_bert(tmp_path_factory.mktemp("encoder") / "bert", WORDS)


class TextContract(NetworkContract):
    settings: ClassVar[dict[str, Any]]
    encoder: ClassVar[str]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _encoder(cls, encoder: str) -> None:
        cls.encoder = encoder

    def uses(self, model: Any, folder: Path) -> list[Callable[[], Any]]:
        more = [lambda: model.explain("w1 w2", [0]), lambda: model.pieces("w1 w2")]
        return [*super().uses(model, folder), *more]

    def make(self) -> Any:
        common = {"encoder": self.encoder, "max_tokens": 20, "batch": 16, "dropout": 0.0}
        return build(parse({**common, **self.settings}, DeepParams, "test"))

    def load(self, folder: Path) -> Any:
        return load(folder)


class TestFrozenLaroberta(TextContract):
    settings: ClassVar[dict[str, Any]] = {
        "model": "laroberta",
        "fc": [16],
        "epochs": 14,
        "lr": 0.03,
        "swa_from": 10,
    }


class TestFineTunedAplc(TextContract):
    # Not promised: a fine-tuned encoder splits operations between threads, which add up otherwise.
    test_number_of_threads_changes_no_byte = None

    settings: ClassVar[dict[str, Any]] = {
        "model": "aplc",
        "freeze_encoder": False,
        "epochs": 6,
        "lr": 0.03,
        "encoder_lr": 0.01,
        "summary_lr": 0.01,
        "swa_from": 4,
    }
