"""Studies stand on the project's params.yaml and presets, which are looked for where one stands."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    """Whatever folder a test before this one was left in."""
    monkeypatch.chdir(ROOT)
