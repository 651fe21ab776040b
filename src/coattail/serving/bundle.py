"""A bundle: one folder with everything that a candidate needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from coattail.data.features import Features
from coattail.files import atomic_folder
from coattail.models import plugins
from coattail.models.kinds import OURS, ModelKind
from coattail.pipeline import registry
from coattail.pipeline.candidates import Candidate, chain_of


def bundle(
    folder: str | Path,
    name: str,
    known: dict[str, Candidate],
    data: Path,
    labels: list[str] | None = None,
) -> Path:
    """Write the bundle of a candidate of ``data``; ``labels`` are its names of labels if others."""
    chain = chain_of(name, known)
    with atomic_folder(folder) as out:
        for part in chain:
            shutil.copytree(data / "models" / part, out / "models" / part)
        Features(data / "features").save_for_tagging(out / "features", labels)
        content: dict[str, Any] = {
            "candidate": name,
            "chain": {
                part: {"stage": one.stage, "sources": list(one.sources)}
                for part, one in chain.items()
            },
        }
        if brought := _plugins(chain, data):
            content["plugins"] = brought
        (out / "bundle.json").write_text(json.dumps(content, indent=1) + "\n")
    return Path(folder)


def brought_by(folder: Path) -> list[ModelKind]:
    """Kinds of models in a bundle that plugins bring."""
    content = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
    kinds = (plugins.kind(name) for name in content.get("plugins", {}))
    return [kind for kind in kinds if kind is not None]


def _plugins(chain: dict[str, Candidate], data: Path) -> dict[str, dict[str, str]]:
    """What else has to be there to load the models: their kinds and packages, by model."""
    if not plugins.installed():
        return {}
    kinds = (registry.kind_in(one.stage, data / "models" / name) for name, one in chain.items())
    return {
        kind.name: {"kind": plugins.value_of(kind.name), "package": kind.package}
        for kind in kinds
        if kind.package != OURS
    }
