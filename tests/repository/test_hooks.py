"""What `make check` runs is what the hooks of pre-commit run, out of the same environment."""

from __future__ import annotations

import re
from pathlib import Path

from coattail.config import read_yaml

ROOT = Path(__file__).resolve().parents[2]


def test_hooks_run_what_make_check_runs_from_the_environment_and_fetch_nothing():
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[
        1
    ]
    tools = {"ruff check", "ruff format", "mypy", "lint-imports", "codespell"}
    (local,) = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    entries = {hook["id"]: hook["entry"] for hook in local["hooks"]}
    assert {hook["language"] for hook in local["hooks"]} == {"system"}
    for tool in tools:
        assert tool in recipe
        assert any(f".venv/bin/{tool}" in entry for entry in entries.values()), tool
    assert len(entries) == len(tools) == len(recipe.splitlines())
