"""A network that another package brings: built, fitted, saved, loaded and explained by its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coattail.errors import ConfigError
from coattail.models import plugins
from coattail.models.deep import deep_models
from coattail.pipeline import registry
from coattail.testing.model_contract import same, separable
from coattail.testing.network_contract import NetworkContract, fit
from tests.testing.tiny_network import WordsumsParams

SECTION = {"model": "wordsums", "tree": "flat", "epochs": 60, "lr": 0.2}


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What pip leaves of a plugin: a folder on the path with its entry point."""
    site = tmp_path_factory.mktemp("site")
    info = site / "wordsums-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wordsums\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[coattail.models]\nwordsums = tests.testing.tiny_network:KIND\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        plugins.installed.cache_clear()
        yield
    plugins.installed.cache_clear()


class TestWordsums(NetworkContract):
    def make(self) -> Any:
        return deep_models.build(registry.parsed("train_deep", SECTION, "here"))

    def load(self, folder: Path) -> Any:
        return registry.load("train_deep", folder)

    def test_the_registry_knows_it(self, fitted: Any, tmp_path: Path) -> None:
        kind = registry.kind("train_deep", "wordsums")
        assert (kind.package, kind.reads, kind.get("params")) == (
            "wordsums",
            "tokens",
            WordsumsParams,
        )
        fitted.model.save(tmp_path / "model")
        loaded = type(fitted.model).load(tmp_path / "model")  # as its class, and by the registry
        again = self.load(tmp_path / "model")
        tokens = self.inputs(fitted.X)
        assert type(again) is type(loaded)
        assert same(again.predict(tokens, 3), loaded.predict(tokens, 3))
        (words,) = kind.get("explain")(again, tokens.row(0), [int(fitted.Y[0].indices[0])], 1)
        assert words[0][0] == fitted.Y[0].indices[0] + 2, "label j is there when word j is"


def test_its_params_are_checked_like_ours() -> None:
    with pytest.raises(
        ConfigError, match=r"here\.ephocs: unknown parameter; did you mean 'epochs'"
    ):
        registry.parsed("train_deep", SECTION | {"ephocs": 3}, "here")


def test_it_is_refused_where_another_stage_trains_it() -> None:
    with pytest.raises(ConfigError, match="wordsums has it for train_deep"):
        registry.parsed("transfer", {"model": "wordsums"}, "here")


def test_its_loss_is_logged() -> None:
    X, Y = separable(40)
    seen: list[float] = []
    contract = TestWordsums()
    fit(
        contract.make(),
        contract.inputs(X),
        Y,
        vocabulary_size=X.shape[1] + 2,
        log=lambda numbers, epoch: seen.append(numbers["loss"]),
    )
    assert len(seen) == SECTION["epochs"]
    assert np.all(np.diff(seen) < 0)
