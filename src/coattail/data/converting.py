"""`coattail data convert`: from the files that publishers offer to those that an entry names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coattail.config import parse, read_yaml, suggestion
from coattail.data import originals, regimes
from coattail.data.dataset_params import CONF, DatasetParams
from coattail.data.fetch import checksum, verify
from coattail.data.own_files import places
from coattail.errors import ConfigError, DataError
from coattail.files import atomic_folder

FROM_ORIGINAL: dict[str, Callable[[Path, Path], None]] = {
    "bibtex": originals.xmc_repository,
    "delicious": originals.xmc_repository,
    "eurlex57k": originals.eurlex57k,
    "reuters": originals.reuters,
}
FROM_ENTRY: dict[str, Callable[[dict[str, Path], Path], None]] = {
    "eurlex57k-15k": regimes.eurlex57k_15k,
    "eurlex57k-8k": regimes.eurlex57k_8k,
}


@dataclass(frozen=True)
class Converted:
    """A file that was written, and whether it is the one that the entry names."""

    path: Path
    right: bool | None  # None: the entry has no checksum of it


def names() -> list[str]:
    return [*FROM_ORIGINAL, *FROM_ENTRY]


def convert(name: str, source: Path, target: Path) -> list[Converted]:
    """Write the files of entry ``name`` into ``target``, which must not be there yet."""
    if name not in names():
        raise ConfigError(f"nothing to convert for {name!r}{suggestion(name, names())}")
    if not source.is_dir():
        raise ConfigError(f"{source} is no folder; wanted the one that holds the original")
    if target.exists():
        raise ConfigError(f"{target} is there already; name a new folder")
    entry = _entry(name)
    with atomic_folder(target) as folder:
        if name in FROM_ENTRY:
            FROM_ENTRY[name](_checked(regimes.ORIGIN, source), folder)
        else:
            FROM_ORIGINAL[name](source, folder)
        missing = [f.name for f in entry.files.values() if not (folder / f.name).is_file()]
        if missing:
            raise DataError(f"{name}: the conversion made no {', '.join(missing)}")
        found = {f.name: checksum(folder / f.name) for f in entry.files.values()}
    return [
        Converted(target / f.name, None if f.sha256 is None else found[f.name] == f.sha256)
        for f in entry.files.values()
    ]


def _entry(name: str) -> DatasetParams:
    path = CONF / "dataset" / f"{name}.yaml"
    found: DatasetParams = parse(read_yaml(path)["dataset"], DatasetParams, f"{path}: dataset")
    return found


def _checked(name: str, source: Path) -> dict[str, Path]:
    """The files of an entry in a folder, each with the entry's checksum."""
    entry = _entry(name)
    found = places(entry, source)
    for role, path in found.items():
        file = entry.files[role]  # type: ignore[index]
        verify(path, f"{path} ({role} of {name})", file.size, file.sha256)
    return found
