"""`coattail use --data`: what pointing a dataset at a folder or mirror changes in params.yaml.

A folder whose files have checksums in the entry is read where it is: the checksums say which bytes
count. Any other folder is taken in by the stage `take_in`, so a change in it is a changed input.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from coattail.config import PARAMS, parse, read_yaml
from coattail.data import taking_in
from coattail.data.dataset_params import (
    DatasetParams,
    TakeInParams,
    VectorsParams,
    is_address,
)
from coattail.data.fetch import checksum
from coattail.data.own_files import clean_name, folder_of, missing
from coattail.errors import ConfigError
from coattail.files import atomic_file

NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
TITLE = (
    "take_in:{}  # folders of yours that data/own has copies of; `coattail use --data` fills this"
)
LOCK = Path("dvc.lock")


@dataclass(frozen=True)
class Own:
    """What is said of data of one's own; None: as in the entry."""

    name: str | None = None
    text_column: str | None = None
    label_column: str | None = None
    separator: str | None = None


class Pointed(NamedTuple):
    """Values of sections to set, and the text of the section ``take_in``."""

    changes: dict[str, dict[str, Any]]
    take_in: str


def point(
    before: dict[str, Any], overlay: dict[str, Any], data: str | None, own: Own, known: set[str]
) -> Pointed:
    """Look at ``data`` and say what to write; what cannot work is refused here.

    Parameters
    ----------
    before : params.yaml as it is
    overlay : the entry's content
    known : names of all entries
    """
    nothing = TITLE.format(" {}") + "\n"
    entry: DatasetParams | None = None
    if "dataset" in overlay:
        entry = parse(overlay["dataset"], DatasetParams, "dataset")
    _check_asked(entry, "vectors" in overlay, data, own)
    if data is None:
        return Pointed({}, nothing)
    if "vectors" in overlay:
        return Pointed({"vectors": {"source": data} | _pins(overlay["vectors"], data)}, nothing)
    assert entry is not None
    if is_address(data):
        return Pointed({"dataset": {"source": data}}, nothing)
    said = _said(entry, own)
    entry = entry.model_copy(update=said)
    _look(entry, folder_of(data), own)
    if entry.pinned:
        return Pointed({"dataset": {"source": data}}, nothing)
    name = _name(entry, before, data, own, known) if _of_ones_own(entry) else entry.name
    copy = str(taking_in.copy_of(name))
    values = said | {"name": name, "source": copy, "taken_in": copy}
    take_in = f"{TITLE.format('')}\n  {name}:\n    folder: {_quoted(data)}\n"
    return Pointed({"dataset": values}, take_in)


def _of_ones_own(entry: DatasetParams | None) -> bool:
    """Whether the entry is for files that only the user has: jsonl, csv, pairs, xmc."""
    return entry is not None and not entry.files and entry.demo is None


def _check_asked(entry: DatasetParams | None, vectors: bool, data: str | None, own: Own) -> None:
    """Refuse options that do not go together."""
    if own != Own() and not _of_ones_own(entry):
        raise ConfigError("--name, columns and separator are for data of your own: jsonl, csv, ...")
    if data is None and entry is not None and _of_ones_own(entry):
        raise ConfigError(
            f"{entry.name} is for data of your own; say where: coattail use {entry.name} "
            "--data FOLDER"
        )
    if data is None or vectors:
        return
    if entry is None or entry.demo is not None:
        raise ConfigError("--data is for datasets and word vectors that are read from files")
    if is_address(data) and _of_ones_own(entry):
        raise ConfigError(f"{data}: data of your own are taken from a folder, not an address")


def _said(entry: DatasetParams, own: Own) -> dict[str, str]:
    """Columns and separator, which only a csv has."""
    said = {
        "text_column": own.text_column,
        "label_column": own.label_column,
        "label_separator": own.separator,
    }
    given = {key: value for key, value in said.items() if value is not None}
    if given and entry.format != "csv":
        raise ConfigError(f"columns and separator are for csv; {entry.name} has none")
    return given


def _look(entry: DatasetParams, folder: Path, own: Own) -> None:
    from coattail.data import first_look

    first_look.look(entry, folder)
    if entry.format == "csv" and own.separator is None:
        first_look.check_separator(entry, folder)


def _name(
    entry: DatasetParams, before: dict[str, Any], data: str, own: Own, known: set[str]
) -> str:
    """Names the MLflow experiment and the registered model, so two datasets do not share one."""
    folder = folder_of(data)
    for name, one in (before.get("take_in") or {}).items():
        if own.name is None and one.get("folder") and _same(one["folder"], folder):
            return str(name)
    name = own.name or clean_name(folder) or entry.format
    if not NAME.fullmatch(name):
        raise ConfigError(f"--name {name}: a name has small letters, digits and hyphens only")
    if name in known:
        raise ConfigError(f"there is a dataset {name!r} already; give yours another: --name NAME")
    other = taking_in.taken_from(name)
    if own.name is None and other and Path(other).is_dir() and not _same(other, folder):
        raise ConfigError(
            f"the name {name!r} is that of {other}, which was taken in before; give this folder "
            f"another: --name NAME (or --name {name}, if it replaces the other)"
        )
    return name


def _same(one: str, other: Path) -> bool:
    return Path(one).expanduser().resolve() == other.resolve()


def _quoted(data: str) -> str:
    return json.dumps(os.path.normpath(data), ensure_ascii=False)


def _pins(vectors: dict[str, Any], data: str) -> dict[str, Any]:
    """Size and checksum of a file of vectors that the entry has none of: a change is noticed."""
    entry: VectorsParams = parse(dict(vectors), VectorsParams, "vectors")
    if is_address(data) or entry.file is None:
        return {}
    folder = folder_of(data)
    for key, file in (("file", entry.file), ("archive", entry.archive)):
        if file is not None and (folder / file.name).is_file():
            if file.sha256 is not None:
                return {}
            path = folder / file.name
            return {key: {"size": path.stat().st_size, "sha256": checksum(path)}}
    raise missing(folder, entry.file.name, "vectors", str(entry.name))


def settle(content: dict[str, Any], data: str | None) -> None:
    """After params.yaml is written: the folder that was named counts; DVC forgets others."""
    used = content.get("take_in") or {}
    if data is not None:
        for name, one in used.items():
            taking_in.consent(name, one["folder"])
    if LOCK.exists():
        before = LOCK.read_text(encoding="utf-8")
        after = re.sub(
            r"^  take_in@(.*):\n(?:    .*\n)*",
            lambda found: found[0] if found[1] in used else "",
            before,
            flags=re.MULTILINE,
        )
        if after != before:
            with atomic_file(LOCK) as path:
                path.write_text(after, encoding="utf-8")


def own_standing() -> taking_in.Standing | None:
    """How the folder in use and its copy stand to each other; None where none is in use."""
    content = read_yaml(PARAMS)
    for name, one in (content.get("take_in") or {}).items():
        own: TakeInParams = parse(one, TakeInParams, f"{PARAMS}: take_in.{name}")
        dataset: DatasetParams = parse(content["dataset"], DatasetParams, f"{PARAMS}: dataset")
        return taking_in.standing(dataset, own)
    return None
