"""A folder of yours and the copy of it that DVC keeps: how they stand, and a new copy if needed.

The copy, data/own/<name>, is what the pipeline reads. A colleague pulls it and needs no folder; who
has the folder corrects it there, and the next run takes it in again.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from coattail.data.dataset_params import OWN, DatasetParams, TakeInParams
from coattail.data.fetch import checksum, need_space
from coattail.data.own_files import places
from coattail.errors import DataError
from coattail.files import atomic_file, atomic_folder
from coattail.progress import progress

log = logging.getLogger("coattail")

MEMORY = Path(".dvc/tmp/coattail/taken")
SETTLED = 2_000_000_000  # nanoseconds without a change, before a file's time and size are believed

Relation = Literal["same", "away", "lost", "new", "changed", "edited", "unclear"]


@dataclass(frozen=True)
class Standing:
    """How a folder and its copy stand to each other.

    ``away``: the folder is not here, the copy is; ``lost``: neither; ``new``: no copy yet;
    ``changed``: the folder has changed since it was taken in; ``edited``: the copy has;
    ``unclear``: they differ, and nothing here tells which of them is newer.
    """

    relation: Relation
    folder: Path
    differing: tuple[str, ...] = ()

    @property
    def how(self) -> str:
        shown = ", ".join(self.differing[:4])
        return shown if len(self.differing) <= 4 else f"{shown} and {len(self.differing) - 4} more"

    @property
    def stale(self) -> bool:
        """Whether the next run must take the folder in, or ask."""
        return self.relation in ("new", "changed", "unclear")

    @property
    def sentence(self) -> str:
        """What a person who asks should know."""
        return {
            "same": f"{self.folder} is as it was taken in",
            "away": f"{self.folder} is not here; the copy of it is used",
            "lost": f"neither {self.folder} nor the copy of it is here",
            "new": f"{self.folder} is not taken in yet",
            "changed": f"{self.folder} has changed since it was taken in: {self.how}",
            "edited": f"the copy of {self.folder} was changed here, and is used as it is",
            "unclear": f"{self.folder} is not what the copy of it holds: {self.how}",
        }[self.relation]


def copy_of(name: str) -> Path:
    return Path(OWN) / name


def original(own: TakeInParams) -> Path | None:
    """The folder; an experiment of the queue runs elsewhere, and finds it from the project."""
    if own.folder is None:
        return None
    return Path(os.environ.get("DVC_ROOT") or ".") / Path(own.folder).expanduser()


def standing(dataset: DatasetParams, own: TakeInParams) -> Standing:
    """Compare the folder with its copy; files that look untouched are not read again."""
    folder, copy = original(own), copy_of(dataset.name)
    shown = Path(own.folder or copy)
    if folder is None or not folder.is_dir():
        return Standing("away" if copy.is_dir() else "lost", shown)
    memory = _Memory.of(dataset.name)
    theirs = memory.sums(set(places(dataset, folder).values()))
    if not copy.is_dir():
        memory.save()
        return Standing("new", shown)
    ours = memory.sums(set(copy.iterdir()))
    known = memory.folder == own.folder
    relation: Relation = "unclear"
    if theirs == ours:
        relation = "same"
        memory.folder, memory.agreed = own.folder, ours
    elif known and memory.agreed in (None, ours):
        relation = "changed"
    elif known and memory.agreed == theirs:
        relation = "edited"
    memory.save()
    return Standing(relation, shown, _differing(ours, theirs))


def consent(name: str, folder: str) -> None:
    """Somebody has named this folder: it counts, whatever the copy holds."""
    memory = _Memory.of(name)
    memory.folder, memory.agreed = folder, None
    memory.save()


def taken_from(name: str) -> str | None:
    """The folder that a dataset of this name was taken from here, if any was."""
    return _Memory.of(name).folder


def command_for(dataset: DatasetParams, folder: str) -> str:
    """The command that names ``folder`` as what counts, and leaves the rest as it is."""
    if dataset.files:
        return shlex.join(["coattail", "use", dataset.name, "--data", folder])
    words = ["coattail", "use", dataset.format, "--data", folder, "--name", dataset.name]
    if dataset.format == "csv":
        words += ["--text-column", dataset.text_column, "--label-column", dataset.label_column]
        words += ["--separator", dataset.label_separator]
    return shlex.join(words)


def take_in(dataset: DatasetParams, own: TakeInParams, copy: Path) -> None:
    """Make ``copy`` what the folder holds, if the folder is here and has changed.

    It says what it does, and guesses nothing: where the two differ and the copy may be the newer
    one, it stops.
    """
    found = standing(dataset, own)
    name, folder = dataset.name, found.folder
    command = command_for(dataset, str(folder))
    if found.relation == "lost":
        raise DataError(
            f"{copy} is not here, and neither is {folder}, of which it is a copy; "
            f"fetch it: dvc pull {copy}, or say where your files are: "
            f"{command_for(dataset, 'FOLDER')}"
        )
    if found.relation == "unclear":
        raise DataError(
            f"{folder} is not what {copy} holds ({found.how}), and nothing here tells which is "
            f"newer\nto take the folder in: {command} (from the project's root), then start again"
            f"\nto go on with the copy: set take_in.{name}.folder to null in params.yaml"
        )
    if found.relation == "away":
        log.info("%s: the copy in %s is used%s", name, copy, _away(own))
    elif found.relation == "same":
        log.info("%s: %s is as it was taken in", name, folder)
    elif found.relation == "edited":
        log.warning(
            "%s: %s was changed here (%s) and %s was not; it is used as it is. To take the folder "
            "in again: %s",
            *(name, copy, found.how, folder, command),
        )
    else:
        size = _copy(dataset, own, copy)
        what = "took in" if found.relation == "new" else f"{found.how}; took in again"
        log.info("%s: %s %s (%.1f MB)", name, what, folder, size / 1e6)


def _away(own: TakeInParams) -> str:
    return f"; {own.folder} is not on this machine" if own.folder else ""


def _copy(dataset: DatasetParams, own: TakeInParams, copy: Path) -> int:
    """Look into the folder, copy its files, remember what both hold; returns the bytes copied."""
    folder = original(own)
    assert folder is not None
    # The readers bring compiled code along, without which most looks at a folder do.
    from coattail.data.first_look import look

    look(dataset, folder)
    files = set(places(dataset, folder).values())
    size = sum(path.stat().st_size for path in files)
    need_space(copy.parent, size, dataset.name)
    shown = progress(f"take in {dataset.name}", size, "bytes")
    with atomic_folder(copy) as temporary, shown as bar:
        for path in sorted(files):
            shutil.copyfile(path, temporary / path.name)
            bar.advance(path.stat().st_size)
    memory = _Memory.of(dataset.name)
    memory.folder, memory.agreed = own.folder, memory.sums(set(copy.iterdir()))
    memory.save()
    return size


def _differing(ours: dict[str, str], theirs: dict[str, str]) -> tuple[str, ...]:
    """What one would see in the folder, with the copy in mind."""
    found = [f"{name} has changed" for name in ours if theirs.get(name, ours[name]) != ours[name]]
    found += [f"{name} is new" for name in theirs if name not in ours]
    return tuple(sorted(found + [f"{name} is gone" for name in ours if name not in theirs]))


@dataclass
class _Memory:
    """What folder and copy held when they last agreed, and checksums of files that look the same.

    It belongs to this machine: `.dvc/tmp` is neither in git nor in a remote.
    """

    name: str
    folder: str | None = None
    agreed: dict[str, str] | None = None  # None: the folder counts
    seen: dict[str, list[int | str]] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str) -> _Memory:
        try:
            return cls(**json.loads((MEMORY / f"{name}.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls(name)

    def save(self) -> None:
        with atomic_file(MEMORY / f"{self.name}.json") as path:
            path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    def sums(self, files: set[Path]) -> dict[str, str]:
        """Checksum by name."""
        return {path.name: self._sum(path) for path in sorted(files)}

    def _sum(self, path: Path) -> str:
        state, key = path.stat(), str(path.absolute())
        marks = [state.st_size, state.st_mtime_ns, state.st_ino]
        known = self.seen.get(key)
        if known and known[:3] == marks:
            return str(known[3])
        began = time.time_ns()
        found = checksum(path)
        # A file that is being written can change once more without its time or size showing it.
        if began - state.st_mtime_ns > SETTLED:
            self.seen[key] = [*marks, found]
        return found
