"""A bundle: one folder with everything that a candidate needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from coattail.data.features import Features
from coattail.files import atomic_folder
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
        content = {
            "candidate": name,
            "chain": {
                part: {"stage": one.stage, "sources": list(one.sources)}
                for part, one in chain.items()
            },
        }
        (out / "bundle.json").write_text(json.dumps(content, indent=1) + "\n")
    return Path(folder)
