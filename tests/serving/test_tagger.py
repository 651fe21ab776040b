"""Which candidate tags a text when nobody names one."""

from __future__ import annotations

import json
import shutil

import pytest

from coattail.errors import ModelError
from coattail.serving.tagger import Tagger
from tests.reportable import shared_workspace


def test_the_champion_tags_unless_another_is_named(tmp_path, tmp_path_factory, monkeypatch):
    made = shared_workspace(tmp_path_factory)
    monkeypatch.chdir(made)
    champion = json.loads((made / "data" / "evaluation" / "summary.json").read_text())["champion"]
    assert Tagger.of_workspace().name == champion["name"]
    assert Tagger.of_workspace("branches").name == "branches"
    shutil.copy("params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="no results yet; run make repro, or name a candidate"):
        Tagger.of_workspace()
