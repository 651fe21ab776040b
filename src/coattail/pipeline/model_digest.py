"""What a candidate depends on besides data, params and its stage: the code of its kind of model.

Of a model of ours that is what its classes reach, as with stages (coattail.pipeline.code_digest).
Of a plugin's it is the files of the plugin, what these import of coattail, and the versions of all
that the plugin requires.
"""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from pydantic import Field

from coattail.config import Params
from coattail.errors import ConfigError
from coattail.models import plugins
from coattail.models.kinds import OURS, ModelKind, modules_of
from coattail.pipeline import code_digest, registry

FOLDER = code_digest.FOLDER / "models"
"""A digest per kind of model."""


def text(kind: ModelKind) -> str:
    """The digest of a kind of model, wherever it comes from."""
    lines = code_digest.listed(*reached(kind)) if kind.package == OURS else _of_plugin(kind)
    return "\n".join(lines) + "\n"


def reached(kind: ModelKind) -> tuple[set[str], set[str]]:
    """Our modules that a kind of ours names and reaches, what loads it included; libraries."""
    return code_digest.follow([*kind.computes, registry.stage(kind.stage).load.partition(":")[0]])


def check(kind: ModelKind, folder: Path = FOLDER) -> str:
    """The digest of a kind of model if it is the one in ``folder``."""
    stage = f"plugins@{kind.name}"
    if kind.package == OURS:
        code_digest.check_installed(reached(kind)[1])
        stage = "code"
    path = folder / f"{kind.name}.txt"
    return code_digest.as_noted(path, text(kind), f"model {kind.name}", f"dvc repro {stage}")


# --- plugins -------------------------------------------------------------------------------------


class PluginParams(Params):
    """An entry of section `plugins` of params.yaml, which has the name of the model."""

    package: str = Field(description="distribution that brings the model: pip install PACKAGE")


def found(name: str, params: PluginParams) -> ModelKind | None:
    """The kind of model, checked; None where the package is not installed."""
    if name in {one.name for one in registry.built_in()}:
        raise ConfigError(
            f"plugins.{name}: coattail itself has a model {name!r}; the author of {params.package} "
            "has to give his another name"
        )
    kind = plugins.kind(name)
    if kind is None:
        return None
    if normal(kind.package) != normal(params.package):
        raise ConfigError(
            f"plugins.{name}: the model {name!r} comes from {kind.package} here, params.yaml says "
            f"{params.package}; correct one of them"
        )
    registry.check_plugin(kind)
    return kind


def _of_plugin(kind: ModelKind) -> list[str]:
    lines: dict[str, str] = {}
    wanted: list[str] = []
    for folder, path in files(kind):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".py":
            lines[name], imports = code_digest.read(path.read_bytes())
            wanted += imports
        else:
            lines[name] = code_digest.sha(path.read_bytes())
    names, outside = code_digest.follow(
        one for one in wanted if one.partition(".")[0] == "coattail"
    )
    lines |= code_digest.digests(names)
    libraries = [*code_digest.packages(outside), *needed(kind.package)]
    versions = sorted({f"{one}=={version(one).split('+')[0]}" for one in libraries})
    rows = [f"{name} {digest}" for name, digest in sorted(lines.items())]
    return [code_digest.PYTHON, *versions, *rows]


def files(kind: ModelKind) -> list[tuple[Path, Path]]:
    """Every file of the packages that a plugin's kind names, and where each package is."""
    listed: list[tuple[Path, Path]] = []
    for place in places(kind):
        if place.is_file():
            listed.append((place.parent, place))
        inside = (path for path in sorted(place.rglob("*")) if path.is_file())
        listed += [(place.parent, path) for path in inside if not _litter(path, place)]
    return listed


def places(kind: ModelKind) -> list[Path]:
    """The packages (folders) and modules (files) of a plugin's kind, as installed here."""
    named = kind.computes | kind.explains | modules_of(kind.add_label, plugins.value_of(kind.name))
    tops = sorted({name.partition(".")[0] for name in named} - {OURS})
    return [place for top in tops for place in _places(top)]


def _places(top: str) -> list[Path]:
    spec = importlib.util.find_spec(top)
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [Path(one) for one in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin else []


def _litter(path: Path, place: Path) -> bool:
    parts = path.relative_to(place).parts
    return "__pycache__" in parts or any(part.startswith(".") or part[-1] == "~" for part in parts)


def needed(package: str) -> list[str]:
    """A distribution and all that it requires, but coattail and what only that requires."""
    todo, seen = [package], set[str]()
    while todo:
        name = normal(todo.pop())
        if name in seen or name == "coattail":
            continue
        seen.add(name)
        wanted = [line for line in _requires(name) if "extra ==" not in line]
        todo += [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted]
    return sorted(name for name in seen if _is_installed(name))


def _requires(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []


def _is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


def normal(name: str) -> str:
    """The name of a distribution as all ways of writing it have it."""
    return name.lower().replace("_", "-").replace(".", "-")
