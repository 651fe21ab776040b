"""Which files of a folder are the dataset: by its entry, or by how people call them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from coattail.config import suggestion
from coattail.data.dataset_params import DatasetParams, FileParams
from coattail.errors import DownloadError

# How people call the splits, and which suffixes hold a format (each also with .gz or .xz).
SPLIT_NAMES = {
    "train": ("train", "trn", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test", "tst"),
}
SUFFIXES = {
    "jsonl": (".jsonl", ".ndjson"),
    "csv": (".csv",),
    "xmc": (".txt", ".xmc"),
    "pairs": (".txt",),
}
PACKED = ("", ".gz", ".xz")
LABEL_NAMES = ("label_names.json", "label_names.txt")


def folder_of(source: str) -> Path:
    """A folder by its path from here, else from the project: queued experiments work elsewhere."""
    path = Path(source).expanduser()
    path = path if path.is_dir() else Path(os.environ.get("DVC_ROOT") or ".") / path
    if not path.is_dir():
        raise DownloadError(
            f"source {source!r} is no folder here; wanted a folder or an http(s) address"
        )
    return path


def detect(format: str, source: Path) -> dict[str, FileParams]:
    """The splits of a folder by the names of its files."""
    found: dict[str, FileParams] = {}
    for split in SPLIT_NAMES:
        match = _one_of(source, _candidates(format, split), split)
        if match is not None:
            found[split] = FileParams(name=match)
            if format == "pairs":
                stem, rest = match.split(".", 1)
                found[f"{split}_labels"] = FileParams(name=f"{stem}.labels.{rest}")
    for split in ("train", "test"):
        if split not in found:
            wanted = _candidates(format, split)[0]
            raise DownloadError(
                f"{source} has no {split} split: wanted {wanted} (or .gz, .xz), got "
                f"{listing(source)}; a dataset needs train and test, a valid split is optional"
            )
    names = _one_of(source, LABEL_NAMES, "label_names")
    if names is not None:
        found["label_names"] = FileParams(name=names)
    return found


def places(dataset: DatasetParams, source: Path) -> dict[str, Path]:
    """Where each file of a dataset is in ``source``, by role; the archive where it holds the rest.

    A file may lie there under its name in the entry or under its name in the original archive.
    """
    files: dict[str, FileParams] = dict(dataset.files.items())
    archive = files.pop("archive", None)
    found: dict[str, Path] = {}
    for role, file in (files or detect(dataset.format, source)).items():
        there = [source / file.name, source / (file.member or file.name)]
        place = next((path for path in there if path.is_file()), None)
        if place is not None:
            found[role] = place
        elif archive is not None and (source / archive.name).is_file():
            found["archive"] = source / archive.name
        else:
            raise missing(source, file.name, role, dataset.name)
    return found


def missing(source: Path, name: str, role: str, what: str) -> DownloadError:
    there = [path.name for path in source.iterdir()]
    return DownloadError(
        f"{source} has no {name} ({role} of {what}), got {listing(source)}"
        f"{suggestion(name, there) if there else ''}"
    )


def listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    shown = ", ".join(names[:8]) or "an empty folder"
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown


def _candidates(format: str, split: str) -> list[str]:
    names, suffixes = SPLIT_NAMES[split], SUFFIXES[format]
    return [f"{name}{suffix}{packed}" for name in names for suffix in suffixes for packed in PACKED]


def _one_of(source: Path, candidates: list[str] | tuple[str, ...], role: str) -> str | None:
    there = [name for name in candidates if (source / name).is_file()]
    if len(there) > 1:
        raise DownloadError(
            f"{source} has {' and '.join(there)} for {role}; wanted one: move the other away"
        )
    return there[0] if there else None


def clean_name(folder: Path) -> str:
    """The folder's name as the name of a dataset: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
