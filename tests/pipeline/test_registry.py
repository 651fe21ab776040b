"""The registry: what it says of every stage and model, and who asks it."""

from __future__ import annotations

import typing
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from coattail.config import Params, read_yaml
from coattail.errors import CoattailError, ConfigError, ModelError
from coattail.models import find_kind, plugins
from coattail.models.kinds import ModelKind, imported
from coattail.models.linear.linear_params import WiredParams
from coattail.pipeline import model_digest, registry
from coattail.pipeline.candidates import candidates
from coattail.pipeline.schema import check

ROOT = Path(__file__).resolve().parents[2]
KINDS = registry.built_in()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_all_that_a_kind_names_is_there(kind):
    params, model = kind.get("params"), kind.get("model")
    assert issubclass(params, Params)
    if registry.stage(kind.stage).chooses:
        assert kind.name in typing.get_args(params.model_fields["model"].annotation)
        registry.check_plugin(kind)  # what is asked of a plugin, ours keep too
    if isinstance(model, type):
        assert {name for name in plugins.METHODS if not hasattr(model, name)} == set()
    for what in ("explain", "norms", "add_label"):
        assert kind.get(what) is None or callable(kind.get(what))


def test_no_two_kinds_have_one_name():
    names = [kind.name for kind in KINDS]
    assert len(set(names)) == len(names)


def test_settings_of_a_stage_are_those_of_its_kinds():
    for stage in registry.CHOOSING:
        for kind in registry.stage(stage).kinds:
            parsed = registry.parsed(stage, {"model": kind.name}, "here")
            assert type(parsed) is kind.get("params")


def test_kinds_know_what_a_candidate_does_for_the_tail_and_its_family():
    known = candidates(read_yaml(ROOT / "params.yaml"))
    assert known["dismec-pwcb"].tail_methods == ("pwcb",)
    assert known["dismec-taug"].tail_methods == ("taug",)
    assert known["attentionxml-tailmix"].tail_methods == ("tailmix",)
    assert known["httn"].tail_methods == ("httn",)
    assert known["dismec-rerank"].tail_methods == ("rerank",)
    assert known["ensemble-rerank"].family == "ensemble"
    assert known["dismec-rerank"].family == "linear"
    assert known["dismec-taug"].made_by == (
        *("download", "preprocess", "build_plt@flat", "augment_tails@taug"),
        "train_linear@dismec-taug",
    )


def test_the_digest_of_a_model_holds_what_trains_it_and_not_what_explains_it():
    def of(name: str) -> str:
        return model_digest.text(next(kind for kind in KINDS if kind.name == name))

    assert "linear/ovr.py" in of("ovr")
    assert "linear/plt.py" not in of("ovr")
    assert "linear/explain.py" not in of("ovr")
    assert "transfer/httn.py" in of("joint")
    assert "estimators/level_model.py" not in of("xmlcnn")
    assert "torch==" in of("laroberta")
    assert "torch==" not in of("fastxml")


# --- plugins that are not as they should be ------------------------------------------------------


GOOD = ModelKind(
    "mine", "train_linear", "tfidf", "x_params:P", "coattail.models.linear.nearest:Nearest"
)


@pytest.fixture
def brought(monkeypatch, tmp_path):
    """Installs entry points of one module ``x_plugin``, as text."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(source: str, *names: str, file: str = "x_plugin") -> None:
        (tmp_path / f"{file}.py").write_text(source)
        points = {n: (EntryPoint(n, f"{file}:KIND", plugins.GROUP),) for n in names}
        monkeypatch.setattr(plugins, "installed", lambda: points)
        plugins.load.cache_clear()

    yield install
    plugins.load.cache_clear()
    import sys

    for name in ("x_plugin", "x_params"):
        sys.modules.pop(name, None)


HEAD = "from coattail.models.kinds import ModelKind\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nothing_like_this", "ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("1 / 0", "ZeroDivisionError"),
        ("KIND = 3", "is a int; wanted a coattail.models.kinds.ModelKind"),
        (f"{HEAD}KIND = ModelKind('yours', 'train_linear', 'tfidf', 'a:b', 'a:b')", "the same"),
        (
            f"{HEAD}KIND = ModelKind('mine', 'rerank', 'rankings', 'a:b', 'a:b')",
            "x_plugin has it for rerank",
        ),
        (f"{HEAD}KIND = ModelKind('mine', 'train_linear', 'texts', 'a:b', 'a:b')", "reads tfidf"),
    ],
)
def test_a_broken_plugin_is_one_sentence_and_breaks_nobody_else(brought, source, message):
    brought(source, "mine")
    assert (
        find_kind.named("ovr", registry.stage("train_linear").kinds, "train_linear").name == "ovr"
    )
    check(read_yaml(ROOT / "params.yaml"))
    with pytest.raises(CoattailError, match="x_plugin") as error:
        registry.kind("train_linear", "mine")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("params", "model", "message"),
    [
        ("class P: pass", "coattail.models.linear.nearest:Nearest", "no subclass of"),
        (
            "from coattail.models.linear.linear_params import NearestParams as P",
            "coattail.models.linear.nearest:Nearest",
            'no field model: Literal["mine"]',
        ),
        (
            "from typing import Literal\n"
            "from coattail.models.linear.linear_params import WiredParams\n"
            "class P(WiredParams):\n    model: Literal['mine']",
            "coattail.arrays:Ragged",
            "has no fit, predict, save, load",
        ),
    ],
)
def test_classes_of_a_plugin_are_looked_at(brought, tmp_path, params, model, message):
    (tmp_path / "x_params.py").write_text(params)
    kind = f"ModelKind('mine', 'train_linear', 'tfidf', 'x_params:P', {model!r})"
    brought(f"{HEAD}KIND = {kind}", "mine")
    with pytest.raises(ConfigError, match="plugin x_plugin is broken") as error:
        registry.parsed("train_linear", {"model": "mine"}, "params.yaml: train_linear.x")
    assert message in str(error.value)


def test_a_plugin_with_the_name_of_a_model_of_ours_is_refused_where_it_is_declared(brought):
    brought(f"{HEAD}KIND = ModelKind('ovr', 'train_linear', 'tfidf', 'a:b', 'a:b')", "ovr")
    assert registry.kind("train_linear", "ovr").package == "coattail"
    content = read_yaml(ROOT / "params.yaml") | {"plugins": {"ovr": {"package": "x"}}}
    with pytest.raises(ConfigError, match="'ovr' is a model of coattail itself"):
        check(content)


def test_two_plugins_of_one_name_are_both_named(monkeypatch):
    points = (
        EntryPoint("mine", "a_x:K", plugins.GROUP),
        EntryPoint("mine", "b_x:K", plugins.GROUP),
    )
    monkeypatch.setattr(plugins, "installed", lambda: {"mine": points})
    with pytest.raises(ConfigError, match=r"several plugins .* \(a_x, b_x\)"):
        plugins.kind("mine")


def test_a_model_of_another_stage_is_refused_with_where_it_belongs():
    with pytest.raises(ConfigError, match=r"train_deep has no model 'ovr'; there is aplc"):
        registry.kind("train_deep", "ovr")


def test_a_plugin_that_params_do_not_declare_is_refused_with_the_line_to_write(brought):
    kind = "ModelKind('mine', 'train_linear', 'tfidf', 'a:b', 'a:b')"
    brought(f"{HEAD}KIND = {kind}", "mine")
    content = read_yaml(ROOT / "params.yaml")
    content["train_linear"]["x"] = {
        "model": "mine",
        "train": "features/tfidf/train",
        "tree": "flat",
    }
    with pytest.raises(ConfigError, match=r"plugins: \{mine: \{package: x_plugin\}\}"):
        registry.check_models(content)


def test_a_project_with_a_plugin_that_is_not_installed_names_its_package():
    content = read_yaml(ROOT / "params.yaml") | {"plugins": {"mine": {"package": "coattail-mine"}}}
    check(content)  # declared and not used
    content["train_linear"]["x"] = {
        "model": "mine",
        "train": "features/tfidf/train",
        "tree": "flat",
    }
    with pytest.raises(ConfigError, match="plugin coattail-mine, which is not installed"):
        candidates(content)


def test_what_cannot_be_imported_is_named_with_the_reason():
    with pytest.raises(ModelError, match=r"the model of x is a\.b:C, which cannot be imported"):
        imported("a.b:C", "the model of x")
    assert imported("coattail.models.linear.linear_params:WiredParams", "x") is WiredParams
