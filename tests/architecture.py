"""Reads stage scripts and modules as text: which data paths they name, which private names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

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


def private_imports(source: str, room: str) -> list[str]:
    """Private names of other rooms that a module imports or takes from a module it imports.

    ``room`` is the package that the module is in; a room within a room is another one.
    """
    tree = ast.parse(source)
    found: list[str] = []
    foreign: set[str] = set()  # local names of things of other rooms
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("coattail"):
            if room in (node.module, str(node.module).rpartition(".")[0]):
                continue
            found += [f"{node.module}.{a.name}" for a in node.names if _private(a.name)]
            foreign |= {a.asname or a.name for a in node.names}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in foreign
            and _private(node.attr)
        ):
            found.append(f"{node.value.id}.{node.attr}")
    return found


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
