"""Only the registry tells stages and models apart by name: looked for in the syntax trees."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from coattail.pipeline import registry

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {path.stem for path in (ROOT / "stages").glob("*.py")}
NAMES = {kind.name for kind in registry.built_in()}
NAMES |= SCRIPTS & {name for one in registry.SECTIONS for name in (one.name, one.stage)}
OWN = {"src/coattail/pipeline/registry.py"}


def dispatches(source: str) -> list[str]:
    """Names of stages and models that a program compares, matches, maps or lists."""
    found: list[tuple[int, str]] = []
    tree = ast.parse(source)
    types = {id(one.slice) for one in ast.walk(tree) if isinstance(one, ast.Subscript)}
    for node in ast.walk(tree):
        if id(node) in types:  # Literal["ovr", "plt"] says what a value may be
            continue
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Dict):
            parts = several([key for key in node.keys if key is not None])
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts = several(node.elts)
        found += [(one.lineno, one.value) for one in parts if is_name(one)]
    return [f"line {line}: {name!r}" for line, name in found]


def several(parts: list[ast.expr]) -> list[ast.expr]:
    """One name alone is told apart from nothing."""
    return parts if sum(is_name(one) for one in parts) > 1 else []


def is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in NAMES


def test_nobody_else_tells_stages_or_models_apart_by_name():
    found = {}
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "stages").glob("*.py")]:
        name = path.relative_to(ROOT).as_posix()
        if name not in OWN and (told := dispatches(path.read_text(encoding="utf-8"))):
            found[name] = told
    assert not found, "ask coattail.pipeline.registry instead"


@pytest.mark.parametrize(
    "line",
    [
        "if stage == 'train_linear': pass",
        "if one.stage in ('ensemble', 'rerank'): pass",
        "FIRST = ('download', 'preprocess')",
        "load = {'ovr': 1, 'plt': 2}[name]",
        "match stage:\n    case 'rerank': pass",
        "x = 'httn' if 'httn' != kind else ''",
    ],
)
def test_telling_them_apart_is_found(line):
    assert dispatches(line)
    assert not dispatches("params = section('train_linear', variant)")
