"""Results of variants that params.yaml no longer has."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from coattail.pipeline import registry
from coattail.pipeline.candidates import stages_before_evaluation

log = logging.getLogger("coattail")

CURVES = Path("plots/training")
"""One file per network; `dvc plots` draws all that are there."""


def leftovers(params: dict[str, Any], data: Path = Path("data")) -> list[Path]:
    """Entries of data/, and curves in plots/ beside it, that no stage of params.yaml makes."""
    found: list[Path] = []
    expected = {"runs": {f"{address}.json" for address in stages_before_evaluation(params)}}
    for one in registry.SECTIONS:
        for folder in one.folders:
            expected.setdefault(folder, set()).update(params.get(one.name) or {})
    digests = [*(kind.name for kind in registry.built_in()), *(params.get("plugins") or {})]
    expected["code/models"] = {f"{name}.txt" for name in digests}
    for folder, names in expected.items():
        there = [path for path in sorted((data / folder).glob("*")) if path.name[0] != "."]
        found += [path for path in there if path.name not in names]
    drawn = {name for one in registry.SECTIONS if one.curves for name in params.get(one.name) or {}}
    curves = sorted((data.parent / CURVES).glob("*.csv"))
    return found + [path for path in curves if path.stem not in drawn]


def remove_leftovers(params: dict[str, Any], data: Path = Path("data")) -> list[Path]:
    """Delete them and return their paths.

    Stages that read a whole folder (all rankings, all results) would otherwise depend on what
    happened to be left there. DVC has the files in its cache, so nothing is lost.
    """
    found = leftovers(params, data)
    for path in found:
        log.info("removed %s: params.yaml has no such variant", path)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return found
