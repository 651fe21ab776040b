"""Reads the source as text: who imports whom, which data paths a stage script touches."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"

FLOORS: dict[str, int] = {
    "errors": 0,
    "arrays": 1,
    "config": 2,
    "progress": 2,
    "pipeline": 2,
    "tracking": 2,
    "runner": 2,
    "engine": 2,
    "kernels": 2,
    "archives": 3,
    "bootstrap": 5,
    "clustering": 3,
    "corpus": 3,
    "demo_tree": 3,
    "features": 3,
    "fetch": 3,
    "textfiles": 3,
    "vectors": 3,
    "xmc": 3,
    "labels": 3,
    "readers": 3,
    "demo": 3,
    "registry": 3,
    "download": 3,
    "text": 3,
    "figures": 3,
    "prepare": 3,
    "tree": 3,
    "metrics": 4,
    "reorder": 4,
    "calibration": 5,
    "naming": 4,
    "losses": 5,
    "augment": 5,
    "boosting": 4,
    "rerank": 5,
    "trade_off": 5,
    "ensemble": 5,
    "transfer": 5,
    "tail_pictures": 5,
    "linear": 5,
    "deep": 5,
    "evaluation": 6,
    "workspace": 6,
    "tracking.model_code": 6,  # MLflow runs it, on top of everything
    "leaderboard": 6,
    "report": 6,
    "serve": 6,
    "add_label": 6,
    "schema": 6,
    "overlay": 6,
    "doctor": 6,
    "team": 6,
    "lineage": 6,
    "experiments": 6,
    "exchange": 6,
    "commands": 6,
    "compare": 6,
    "pictures": 6,
    "search_plan": 6,
    "search_space": 6,
    "trial": 6,
    "tune": 6,
    "tune_report": 6,
    "cli": 6,
}

PLUMBING = ("errors", "config", "progress", "tracking", "runner")
"""Modules that cannot change what a stage computes, so no stage declares them."""


def modules() -> dict[str, Path]:
    """Dotted name -> file, of the whole library."""
    found = {}
    for path in sorted((SRC / "coattail").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def floor_name(module: str) -> str:
    """The piece of the house a module belongs to: coattail.models.linear.ovr -> linear."""
    if module.removeprefix("coattail.") in FLOORS:
        return module.removeprefix("coattail.")
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@cache
def imports(path: Path) -> frozenset[str]:
    """Every module a file imports, at its top or inside functions; our own names resolved."""
    known = modules()
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {
                f"{node.module}.{alias.name}"
                for alias in node.names
                if f"{node.module}.{alias.name}" in known
            }
    return frozenset(found)


def reached(start: Path) -> set[str]:
    """Our modules that a file imports directly or through others, plumbing left out."""
    known = modules()
    todo, seen = [start], set()
    while todo:
        for name in imports(todo.pop()):
            if name in known and name not in seen and floor_name(name) not in PLUMBING:
                seen.add(name)
                # Importing a.b.c runs a/__init__ and a.b/__init__ too.
                parents = [".".join(name.split(".")[:i]) for i in range(2, name.count(".") + 1)]
                seen |= {p for p in parents if p in known}
                todo += [known[name], *(known[p] for p in parents if p in known)]
    return {name for name in seen if name != "coattail"}


def source_dependencies(stage: str) -> list[str]:
    """The code a stage must declare: its script and what it reaches."""
    script = ROOT / "stages" / f"{stage}.py"
    files = [modules()[name] for name in reached(script)]
    return sorted(str(path.relative_to(ROOT)) for path in [script, *files])


PATH = re.compile(r"^(data|metrics|plots)(/|$)")


def touched_paths(stage: str) -> set[str]:
    """Data paths written out in a stage script, with ``{variant}`` as DVC's ``${key}``."""
    tree = ast.parse((ROOT / "stages" / f"{stage}.py").read_text(encoding="utf-8"))
    docstring = ast.get_docstring(tree, clean=False)
    found = set()
    inside = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                part.value
                if isinstance(part, ast.Constant)
                else "{" + ast.unparse(part.value) + "}"
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in inside or node.value == docstring:
                continue
            text = node.value
        else:
            continue
        if PATH.match(text):
            text = re.sub(r"\{params\.(\w+)\}", r"${item.\1}", text)
            found.add(text.replace("{variant}", "${key}"))
    return found
