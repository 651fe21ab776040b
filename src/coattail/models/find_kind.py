"""Which kind of model a name or a folder means: one of ours, or one that a plugin brings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coattail.config import parse
from coattail.errors import ConfigError, ModelError
from coattail.models.kinds import ModelKind


def named(name: str, kinds: Sequence[ModelKind], stage: str) -> ModelKind:
    """A kind of a stage by name: one of ``kinds``, its own, or a plugin's."""
    own = {kind.name: kind for kind in kinds}
    if name in own:
        return own[name]
    from coattail.models import plugins  # it looks at all that is installed

    found = plugins.kind(name)
    if found is None or found.stage != stage:
        there = f"; {found.package} has it for {found.stage}" if found else plugins.how_to_get(name)
        raise ConfigError(
            f"{stage} has no model {name!r}; there is {', '.join(sorted(own))}{there}"
        )
    return found


def load(folder: str | Path, own: Sequence[ModelKind], stage: str, *more: Any) -> Any:
    """The trained model in a folder of a stage; ``more`` is for its ``load``."""
    try:
        kind = named(name_in(folder), own, stage)
    except ConfigError as error:
        raise ModelError(f"{folder} cannot be loaded: {error}") from None
    found = kind.get("model")
    if not hasattr(found, "load"):  # a function: which class it is depends on the settings
        where = f"{folder}/params.json"
        content = json.loads(Path(where).read_text(encoding="utf-8"))
        found = type(kind.build(parse(content.get("params", content), kind.get("params"), where)))
    return found.load(folder, *more)


def name_in(folder: str | Path) -> str:
    """Which kind of model a folder holds, by the params.json that every model leaves there."""
    path = Path(folder) / "params.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return str(content.get("params", content)["model"])
    except FileNotFoundError:
        raise ModelError(
            f"{folder} holds no model: params.json is missing; run dvc repro"
        ) from None
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise ModelError(f"{path} names no model: {error!r}; train it again") from None
