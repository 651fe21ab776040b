"""What an unfinished fit was begun with: it goes on with the same, else starts anew and says why.

Every input has a name and a digest, so a fit that starts anew can name what changed. No numpy here:
the runner of stages imports this before anything heavy.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coattail import __version__
from coattail.files import atomic_file

log = logging.getLogger("coattail")

FORMAT = 2  # of checkpoints and parts: one more whenever they are written otherwise
NAME = "begun_with.json"

Inputs = dict[str, str]
"""Name of an input -> its digest."""

_code = f"coattail {__version__}"


def set_code(text: str) -> None:
    """Say which code runs: a stage's digest. Otherwise it is the version of the package."""
    global _code
    _code = text


def code() -> str:
    """What tells the code of this process from others."""
    return _code


def inputs(params: Any, things: Mapping[str, Any]) -> Inputs:
    """Digests of all that a fit depends on; every field of ``params`` (pydantic) has its own."""
    fields = {f"params.{name}": value for name, value in params.model_dump(mode="json").items()}
    everything = {"format": FORMAT, "code": code(), **fields, **things}
    return {name: digest(thing) for name, thing in everything.items()}


def digest(thing: Any) -> str:
    """Of numbers, strings, bytes, arrays, CSR matrices, ragged arrays, and sequences of them."""
    found = hashlib.blake2b(digest_size=16)
    _feed(found, thing)
    return found.hexdigest()


def _feed(found: Any, thing: Any) -> None:
    if isinstance(thing, str):
        _feed(found, thing.encode())
    elif hasattr(thing, "indices"):  # CSR
        _feed(found, [list(thing.shape), thing.indptr, thing.indices, thing.data])
    elif hasattr(thing, "indptr"):  # ragged
        _feed(found, [thing.indptr, thing.values])
    elif hasattr(thing, "__array_interface__") or isinstance(thing, bytes):
        view = memoryview(thing)
        found.update(f"{view.format}{view.shape}:".encode())
        found.update(view if view.c_contiguous else view.tobytes())
    elif isinstance(thing, Sequence):
        found.update(f"{len(thing)} of ".encode())
        for one in thing:
            _feed(found, one)
    else:
        found.update(repr(thing).encode() + b";")


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of the inputs that differ, are new, or are gone."""
    return [name for name in {**now, **before} if before.get(name) != now.get(name)]


def starts_anew(name: str, place: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Log why what is kept at ``place`` is of no use; ``before`` is empty where it cannot tell."""
    differing = ", ".join(changed(before, now)) if before else ""
    reason = f"was begun with other {differing}" if differing else "cannot be read"
    log.warning("%s: starting anew, since %s %s", name, place, reason)


def claim(name: str, folder: Path, now: Inputs) -> None:
    """Make ``folder`` one for parts of the fit ``now``; parts of another one go."""
    if folder.exists():
        before = _read(folder / NAME)
        if before == now:
            return
        starts_anew(name, folder, before, now)
        shutil.rmtree(folder)
    with atomic_file(folder / NAME) as temporary:
        temporary.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")


def _read(path: Path) -> Inputs:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}
