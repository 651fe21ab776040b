"""Functions fit a screen."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "stages", "scripts", "benchmarks", "tests")
LONGEST, LONGEST_KERNEL = 60, 80  # lines after the first; compiled loops pass much between them


def too_long(source: str, most: int) -> list[tuple[str, int]]:
    """Functions with more than ``most`` lines after their first, at any depth."""
    return [
        (node.name, lines)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno) > most
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_fit_a_screen(folder):
    found, files = [], sorted((ROOT / folder).rglob("*.py"))
    assert files
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        most = LONGEST_KERNEL if "coattail/kernels/" in name else LONGEST
        found += [
            f"{name} {function}: {lines} lines, at most {most}; divide it"
            for function, lines in too_long(path.read_text(encoding="utf-8"), most)
        ]
    assert not found, "\n".join(found)


def test_a_function_that_is_too_long_is_found():
    body = "\n".join(f"        x = {i}" for i in range(5))
    source = f"class C:\n    async def method(self):\n{body}\n\ndef short():\n    pass\n"
    assert too_long(source, 4) == [("method", 5)]
    assert too_long(source, 5) == []
