"""What a stage has written, by DVC's own md5: of a file, or of a folder with all that it holds."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from coattail.config import read_yaml

CHUNK = 1 << 20


def declared(stage: str, variant: str | None, file: Path = Path("dvc.yaml")) -> list[str]:
    """Paths that dvc.yaml names as outputs of a stage; none where there is no dvc.yaml."""
    if not file.exists():
        return []
    entry: dict[str, Any] = read_yaml(file).get("stages", {}).get(stage, {})
    names: list[str] = []
    for one in [*entry.get("do", entry).get("outs", []), *entry.get("metrics", [])]:
        names += one if isinstance(one, dict) else [one]
    return [name.replace("${key}", variant or "") for name in names]


def md5(path: Path) -> str:
    """As dvc.lock has it: what a stage says of itself can be held against what DVC keeps."""
    if path.is_dir():
        entries = [
            {"md5": _of_file(one), "relpath": one.relative_to(path).as_posix()}
            for one in path.rglob("*")
            if one.is_file()
        ]
        listing = json.dumps(sorted(entries, key=lambda entry: entry["relpath"]), sort_keys=True)
        return hashlib.md5(listing.encode(), usedforsecurity=False).hexdigest() + ".dir"
    return _of_file(path)


def _of_file(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
