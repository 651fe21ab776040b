"""Fill data/raw: generate, copy from a folder, or fetch a dataset; verify; write a manifest."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from coattail.data.archives import extract
from coattail.data.dataset_params import (
    DatasetParams,
    FileParams,
    VectorsParams,
    address_of,
    is_address,
)
from coattail.data.demo_corpus import generate
from coattail.data.fetch import REMEDY, fetch, need_space, verify
from coattail.data.own_files import detect, folder_of, missing
from coattail.errors import DownloadError
from coattail.files import atomic_folder

log = logging.getLogger("coattail")


class _Bundle(NamedTuple):
    """Files that come from one place, perhaps in one archive."""

    name: str
    source: str | None
    files: dict[str, FileParams]
    archive: FileParams | None


def acquire(
    dataset: DatasetParams, folder: str | Path, vectors: VectorsParams | None = None
) -> dict[str, Any]:
    """Fill ``folder`` with the dataset's files and ``manifest.json``; returns the manifest.

    ``folder`` appears complete or not at all. What was fetched of an unfinished dataset waits in
    ``.partial`` beside ``folder`` for the next attempt.
    """
    folder = Path(folder)
    fetched = _Fetched(folder.parent / ".partial")
    with _space_errors(folder), atomic_folder(folder) as temporary:
        files: dict[str, FileParams] = {}
        if dataset.demo is not None:
            made = generate(dataset.demo, temporary, dataset.propensity.A, dataset.propensity.B)
            files = {role: FileParams(name=name) for role, name in made.items()}
        else:
            files = _bring(_dataset_bundle(dataset), temporary, fetched)
        if vectors is not None and vectors.file is not None:
            bundle = _Bundle(
                f"vectors/{vectors.name}",
                vectors.source,
                {"vectors": vectors.file},
                vectors.archive,
            )
            files |= _bring(bundle, temporary, fetched)
        manifest = _manifest(dataset, files, temporary)
        text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
        (temporary / "manifest.json").write_text(text, encoding="utf-8")
    fetched.clear()
    log.info("%s: %s files in %s", dataset.name, len(files), folder)
    return manifest


@contextmanager
def _space_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DownloadError(f"no space left for {folder}; make room and run again") from None


def _manifest(dataset: DatasetParams, files: dict[str, FileParams], folder: Path) -> dict[str, Any]:
    """No times and no paths of this machine: equal data give equal bytes."""
    sums = {
        file.name: verify(
            folder / file.name, f"{dataset.name}: {file.name}", file.size, file.sha256
        )
        for file in files.values()
    }
    columns = [dataset.text_column, dataset.label_column]
    expect = dataset.expect.model_dump(exclude_none=True)
    return {
        "name": dataset.name,
        "format": "jsonl" if dataset.format == "demo" else dataset.format,
        **({"columns": columns} if dataset.format == "csv" else {}),
        **({"expect": expect} if expect else {}),
        "files": {role: file.name for role, file in files.items()},
        "label_separator": dataset.label_separator,
        "propensity": {"A": dataset.propensity.A, "B": dataset.propensity.B},
        "sha256": sums,
    }


def _dataset_bundle(dataset: DatasetParams) -> _Bundle:
    files: dict[str, FileParams] = dict(dataset.files.items())
    archive = files.pop("archive", None)
    if not files:
        files = _own_files(dataset)
    return _Bundle(dataset.name, dataset.source, files, archive)


def _own_files(dataset: DatasetParams) -> dict[str, FileParams]:
    if dataset.source is None or is_address(dataset.source):
        raise DownloadError(
            f"dataset {dataset.name} has no files of its own; point it at a folder: "
            f"coattail use {dataset.name} --data FOLDER"
        )
    return detect(dataset.format, folder_of(dataset.source))


def check_source(dataset: DatasetParams) -> None:
    """Refuse files that could change without anybody noticing: neither taken in nor pinned."""
    local = dataset.source is not None and not is_address(dataset.source)
    if local and dataset.source != dataset.taken_in and not dataset.pinned:
        raise DownloadError(
            f"{dataset.source} was not taken in and its files have no checksums, so a change in "
            "them would go unnoticed; take the folder in: coattail use "
            f"{dataset.format if not dataset.files else dataset.name} --data {dataset.source}"
        )


# --- from a folder, a mirror, the public addresses -----------------------------------------------


def _bring(bundle: _Bundle, target: Path, fetched: _Fetched) -> dict[str, FileParams]:
    """Put the files of a bundle into ``target``; returns them by role."""
    sizes = [file.size or 0 for file in bundle.files.values()]
    need_space(target, sum(sizes), bundle.name)
    if bundle.source is not None and not is_address(bundle.source):
        _copy_all(bundle, folder_of(bundle.source), target)
    else:
        _fetch_all(bundle, target, fetched)
    return bundle.files


def _copy_all(bundle: _Bundle, source: Path, target: Path) -> None:
    packed = {}
    for role, file in bundle.files.items():
        places = [source / file.name, source / (file.member or file.name)]
        place = next((place for place in places if place.is_file()), None)
        if place is not None:
            need_space(target, place.stat().st_size, file.name)
            shutil.copyfile(place, target / file.name)
        elif bundle.archive is not None and (source / bundle.archive.name).is_file():
            packed[role] = file
        else:
            raise missing(source, file.name, role, bundle.name)
    if packed and bundle.archive is not None:
        archive = source / bundle.archive.name
        verify(archive, str(archive), bundle.archive.size, bundle.archive.sha256)
        _extract(archive, packed, target)


def _fetch_all(bundle: _Bundle, target: Path, fetched: _Fetched) -> None:
    packed = {}
    for role, file in bundle.files.items():
        if bundle.archive is not None and file.address is None:
            packed[role] = file
        else:
            _link(fetched.get(bundle, file), target / file.name)
    if packed and bundle.archive is not None:
        _extract(fetched.get(bundle, bundle.archive), packed, target)


def _link(path: Path, target: Path) -> None:
    """A second name for a fetched file: no copy, and nothing is lost if a later file fails."""
    try:
        target.hardlink_to(path)
    except OSError:  # not every file system can
        shutil.copyfile(path, target)


class _Fetched:
    """Files that have arrived, or arrive, in ``.partial``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.used: list[Path] = []

    def get(self, bundle: _Bundle, file: FileParams) -> Path:
        """The file, fetched unless it arrived whole in an earlier attempt."""
        if bundle.source is not None:
            address: str | None = f"{bundle.source.rstrip('/')}/{file.name}"
        else:
            address = address_of(file)
        if address is None:
            raise DownloadError(f"{bundle.name}: {file.name} has no public address; {REMEDY}")
        key = hashlib.sha256(f"{address} {file.sha256}".encode()).hexdigest()[:16]
        path = self.folder / key / file.name
        if not path.exists():
            fetch(address, path, file.size, file.sha256)
        self.used.append(path.parent)
        return path

    def clear(self) -> None:
        """Forget what was used; what another dataset left unfinished stays."""
        for folder in self.used:
            shutil.rmtree(folder, ignore_errors=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()


def _extract(archive: Path, packed: dict[str, FileParams], target: Path) -> None:
    sizes = [file.size for file in packed.values()]
    known = [size for size in sizes if size is not None]
    largest = sum(known) if len(known) == len(sizes) else None
    extract(
        archive, {file.member or file.name: file.name for file in packed.values()}, target, largest
    )
