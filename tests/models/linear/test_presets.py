"""The overlays of linear models in conf/preset: complete, valid, and named as the papers are."""

from __future__ import annotations

from pathlib import Path

import pytest

from coattail.config import read_yaml
from coattail.pipeline import overlay

ROOT = Path(__file__).resolve().parents[3]
PRESETS = sorted(path.stem for path in (ROOT / "conf" / "preset").glob("linear*.yaml"))
MODELS = {
    *("dismec", "dismec-pw", "dismec-pwcb", "parabel", "bonsai", "bonsai-pw", "bonsai-pwcb"),
    *("plt-logistic", "fastxml", "pfastrexml"),
}


@pytest.mark.parametrize("name", PRESETS)
def test_preset_fits_the_schema_and_has_every_model(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    overlay.merge(f"preset/{name}", None)  # refuses what params.yaml would refuse
    found = read_yaml(ROOT / "conf" / "preset" / f"{name}.yaml")
    assert set(found["train_linear"]) == MODELS


def test_large_sets_differ_in_the_depth_of_bonsai_alone():
    small, large = (
        read_yaml(ROOT / "conf" / "preset" / f"{name}.yaml")
        for name in ("linear-paper", "linear-paper-large")
    )
    assert small["build_plt"]["bonsai"].pop("levels") == 1
    assert large["build_plt"]["bonsai"].pop("levels") == 2
    assert small == large
