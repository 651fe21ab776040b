"""Every input of a network's training: a checkpoint that was begun with another is not used."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.arrays import Ragged
from coattail.config import parse
from coattail.labels.tree import Tree
from coattail.models import begun_with
from coattail.models.deep.deep_models import build
from coattail.models.deep.deep_params import DeepParams
from coattail.models.deep.transfer import transfer_models
from coattail.models.deep.transfer.transfer_params import TransferParams
from coattail.testing import network_contract
from coattail.testing.model_contract import digest
from tests.tiny_bert import save_tiny_bert

N, WORDS, LABELS = 24, 20, 6
RNG = np.random.default_rng(0)
TOKENS = Ragged(np.arange(N + 1) * 4, RNG.integers(2, WORDS, 4 * N).astype(np.int32))
OTHER_TOKENS = Ragged(TOKENS.indptr, TOKENS.values[::-1].copy())
Y = sp.csr_matrix((RNG.random((N, LABELS)) < 0.4).astype(np.float32))
OTHER_Y = sp.csr_matrix(Y[::-1])
VECTORS = RNG.normal(size=(WORDS, 5)).astype(np.float32)
SIX = np.array([1, 1, 1, 2, 2, 2], np.int32)
TREE = Tree(np.array([-1, 0, 0], np.int32), SIX)
OTHER_TREE = Tree(TREE.parent, SIX[[0, 3, 1, 4, 2, 5]])
COMMON = {"epochs": 2, "batch": 8, "lr": 0.01, "weighting": "pw"}
MODELS: dict[str, dict[str, Any]] = {
    "bilstm": {"model": "bilstm", "hidden": 3},
    "level": {"model": "attentionxml", "tree": "pairs", "hidden": 3, "fc": [4], "candidates": 1},
    "laroberta": {"model": "laroberta", "max_tokens": 8},
    "httn": {"model": "httn", "hidden": 3, "dim": 4, "sets": 2},
}
OVER_TOKENS: dict[str, dict[str, Any]] = {
    "params.lr": {"lr": 0.02},
    "tokens": {"tokens": OTHER_TOKENS},
    "labels": {"Y": OTHER_Y},
    "validation tokens": {"valid": (OTHER_TOKENS, Y)},
    "validation labels": {"valid": (TOKENS, OTHER_Y)},
    "size of the vocabulary": {"vocabulary_size": WORDS + 1, "vectors": None},
    "word vectors": {"vectors": VECTORS[::-1]},
    "propensity": {"propensity": (0.6, 2.6)},
    "code": {"code": "another digest"},
    "format": {"format": begun_with.FORMAT + 1},
}
CASES = [(model, name) for model in ("bilstm", "level", "httn") for name in OVER_TOKENS]
CASES += [("level", "tree")]
BERT_WORDS = [f"w{i}" for i in range(WORDS)]


class Killed(Exception):
    """Ends a training in its second epoch."""


def fit(settings: dict[str, Any], kill: bool = False, **changed: Any) -> Any:
    def log(numbers: dict[str, float], epoch: int) -> None:
        if kill and epoch == 1:
            raise Killed

    usual = {"tokens": TOKENS, "Y": Y, "valid": (TOKENS, Y), "vectors": VECTORS}
    usual |= {"vocabulary_size": WORDS, "trees": [TREE], "threads": 1, "log": log}
    given = usual | changed
    if settings["model"] == "httn":
        model = transfer_models.build(parse({**COMMON, **settings}, TransferParams, "test"))
    else:
        model = build(parse({**COMMON, **settings}, DeepParams, "test"))
    return network_contract.fit(model, given.pop("tokens"), given.pop("Y"), **given)


def check(
    settings: dict[str, Any],
    named: str,
    changed: dict[str, Any],
    usual: dict[str, Any],
    tools: tuple[Path, pytest.MonkeyPatch, pytest.LogCaptureFixture],
) -> None:
    """Kill a training, begin it again with something changed: as if it had never been there."""
    folder, monkeypatch, caplog = tools
    caplog.set_level(logging.WARNING, logger="coattail")
    checkpoint, changed = folder / "some.ckpt", dict(changed)
    with pytest.raises(Killed):
        fit(settings, kill=True, checkpoint=checkpoint, **usual)
    assert list(folder.glob("*.ckpt"))
    changed.pop("between", lambda: None)()
    for name, key in (("_code", "code"), ("FORMAT", "format")):
        if key in changed:
            monkeypatch.setattr(begun_with, name, changed.pop(key))
    other = settings | {key: changed.pop(key) for key in ("lr",) if key in changed}
    caplog.clear()
    fit(other, checkpoint=checkpoint, **(usual | changed)).save(folder / "again")
    messages = [one for one in caplog.messages if "starting anew" in one]
    assert messages
    assert all(one.endswith(f"was begun with other {named}") for one in messages)
    fit(other, **(usual | changed)).save(folder / "fresh")
    assert digest(folder / "again") == digest(folder / "fresh")


@pytest.mark.parametrize(("model", "named"), CASES)
def test_a_changed_input_starts_anew_and_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    model: str,
    named: str,
) -> None:
    changed = {**OVER_TOKENS, "tree": {"trees": [OTHER_TREE]}}[named]
    usual = {"vectors": None} if named == "size of the vocabulary" else {}
    settings = MODELS[model]
    check(settings, named, changed, usual, (tmp_path, monkeypatch, caplog))


def texts(tokens: Ragged) -> list[str]:
    return [" ".join(BERT_WORDS[w] for w in tokens.row(i)) for i in range(tokens.n)]


OVER_TEXTS: dict[str, dict[str, Any]] = {
    "params.lr": {"lr": 0.02},
    "texts": {"tokens": texts(OTHER_TOKENS)},
    "labels": {"Y": OTHER_Y},
    "validation texts": {"valid": (texts(OTHER_TOKENS), Y)},
    "validation labels": {"valid": (texts(TOKENS), OTHER_Y)},
    "propensity": {"propensity": (0.6, 2.6)},
    "encoder": {},
    "code": {"code": "another digest"},
    "format": {"format": begun_with.FORMAT + 1},
}


@pytest.mark.parametrize("named", OVER_TEXTS)
def test_a_changed_input_of_a_pretrained_encoder_starts_anew_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, named: str
) -> None:
    pytest.importorskip("transformers", reason="needs the extra coattail[transformers]")
    encoder = save_tiny_bert(tmp_path / "bert", BERT_WORDS)
    usual = {"tokens": texts(TOKENS), "valid": (texts(TOKENS), Y)}
    settings = MODELS["laroberta"] | {"encoder": encoder}

    def another_in_its_place() -> None:
        shutil.rmtree(encoder)
        save_tiny_bert(Path(encoder), BERT_WORDS, layers=2)

    changed = {"between": another_in_its_place} if named == "encoder" else OVER_TEXTS[named]
    check(settings, named, changed, usual, (tmp_path, monkeypatch, caplog))
