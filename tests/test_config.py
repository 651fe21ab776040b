"""Mistakes in params.yaml become messages that name the place and the remedy."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

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


@pytest.mark.parametrize("text", ["a: [1", "- 1\n- 2\n", ""])
def test_what_is_not_a_yaml_mapping_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match=r"params\.yaml"):
        config.read_yaml(write(tmp_path, text))


def test_a_missing_file_tells_where_to_stand(tmp_path):
    with pytest.raises(ConfigError, match="project's root"):
        config.read_yaml(tmp_path / "params.yaml")
