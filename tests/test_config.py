"""Mistakes in params.yaml become messages that name the place and the remedy."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import Field
from ruamel.yaml import YAML

from coattail import config
from coattail.config import Params
from coattail.errors import ConfigError


class Ovr(Params):
    model: Literal["ovr"]
    C: float = Field(1.0, gt=0)


class Plt(Params):
    model: Literal["plt"]
    beam: int = 10


Model = Annotated[Ovr | Plt, Field(discriminator="model")]


def write(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    return path


def test_a_section_becomes_a_frozen_object_with_defaults(tmp_path):
    path = write(tmp_path, "train:\n  a:\n    model: ovr\n    C: 2\n")
    params = config.load("train.a", Model, path)
    assert params == Ovr(model="ovr", C=2.0)
    with pytest.raises(ValueError, match="frozen"):
        params.C = 3.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{model: plt, beams: 3}", r"a\.beams: unknown parameter; did you mean 'beam'\?"),
        ("{model: ovr, C: x}", r"a\.C: got 'x'; input should be a valid number"),
        ("{model: ovr, C: -1}", r"a\.C: got -1; input should be greater than 0"),
        ("{model: plt, beam: 1.5}", r"a\.beam: got 1\.5; input should be a valid integer"),
        ("{model: pl}", "'ovr', 'plt'"),
        ("3", r"a: got 3"),
    ],
)
def test_each_kind_of_mistake_has_its_own_clear_message(tmp_path, text, message):
    path = write(tmp_path, f"train:\n  a: {text}\n")
    with pytest.raises(ConfigError, match=message):
        config.load("train.a", Model, path)


def test_all_mistakes_are_reported_at_once(tmp_path):
    path = write(tmp_path, "a: {model: ovr, C: -1, x: 1}\n")
    with pytest.raises(ConfigError) as error:
        config.load("a", Model, path)
    assert len(str(error.value).split("\n")) == 2


def test_a_missing_section_suggests_a_near_one(tmp_path):
    path = write(tmp_path, "train_linear:\n  dismec: {model: ovr}\n")
    with pytest.raises(ConfigError, match="did you mean 'dismec'"):
        config.load("train_linear.dismek", Model, path)


def test_a_missing_key_says_so(tmp_path):
    class Base(Params):
        base: str

    path = write(tmp_path, "a: {}\n")
    with pytest.raises(ConfigError, match=r"a\.base: missing"):
        config.load("a", Base, path)


@pytest.mark.parametrize("text", ["a: [1", "1\n- 2\n", ""])
def test_what_is_not_a_yaml_mapping_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match=r"params\.yaml"):
        config.read_yaml(write(tmp_path, text))


def test_a_missing_file_tells_where_to_stand(tmp_path):
    with pytest.raises(ConfigError, match="project's root"):
        config.read_yaml(tmp_path / "params.yaml")


# --- YAML: read quickly, and as DVC reads it -----------------------------------------------------

PLAIN = """1 -2 +3 012 0o17 0x1F 0b101 1_000 -0 1e-3 1E5 1.5e3 .5 -.5 1. 0.1 .inf -.inf .nan 1:30
yes no on off y n true False TRUE null ~ Null nil 2026-11-19 20:30 0.1.2 1e 0x 0o8 08 e5 é"""


@pytest.mark.parametrize("word", PLAIN.split())
def test_plain_words_are_read_as_dvc_reads_them(word):
    text = f"a: {word}\nb: [{word}]\n{word}x: 1\n"
    wanted = YAML(typ="safe", pure=True).load(text)
    assert repr(config.yaml_value(text, "here")) == repr(wanted)


@settings(derandomize=True)
@given(st.text(st.sampled_from("0123456789+-._eExobnNaflrtuys~:= "), max_size=8))
def test_any_plain_scalar_is_what_dvc_reads_or_an_error(text):
    try:
        wanted = YAML(typ="safe", pure=True).load(f"a: {text}\n")
    except Exception:
        return
    try:
        got = config.yaml_value(f"a: {text}\n", "here")
    except ConfigError:
        return
    assert repr(got) == repr(wanted)


@pytest.mark.parametrize("name", ["params.yaml", "dvc.yaml", "dvc.lock", "deploy/compose.yaml"])
def test_our_own_files_are_read_as_dvc_reads_them(name):
    root = Path(__file__).parents[1]
    assert config.read_yaml(root / name) == YAML(typ="safe", pure=True).load(
        (root / name).read_text()
    )


def test_a_broken_file_names_the_line(tmp_path):
    path = write(tmp_path, "a: 1\nb: {c: 2\nd: 3\n")
    with pytest.raises(ConfigError, match=r"params\.yaml is not valid YAML: (?s:.*)line 3"):
        config.read_yaml(path)


@pytest.mark.parametrize(
    "text", ["a: 1\nb: 2\na: 3\n", "x: {a: 1, a: 1}\n", "x:\n- {1: b, 1: c}\n"]
)
def test_a_key_that_stands_twice_is_named_with_its_line(tmp_path, text):
    with pytest.raises(ConfigError, match=r"stands twice(?s:.*)line \d"):
        config.read_yaml(write(tmp_path, text))


def test_merged_keys_may_be_set_anew(tmp_path):
    text = "base: &base {C: 1, tree: flat}\nmore: {<<: *base, C: 2}\n"
    assert config.read_yaml(write(tmp_path, text))["more"] == {"C": 2, "tree": "flat"}


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(derandomize=True)
@given(VALUES)
@example("1e-3")
@example("012")
@example("0o17")
@example({"yes": "no", "b": [1e-5, "1e5", "~"]})
def test_what_is_written_is_read_back_here_and_by_dvc(value):
    text = config.yaml_text({"value": value})
    assert config.yaml_value(text, "here") == {"value": value}
    assert YAML(typ="safe", pure=True).load(text) == {"value": value}
