"""Where compiled kernels are cached: under the content of their source, not under its path.

Numba caches compiled code under the path of its source. Then every clone and every queued
experiment (which runs in a copy of the project) would compile again, and a kernel would not notice
a change in another file whose functions it has compiled in. A digest of the file and of the kernel
files it imports solves both.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path

from numba.core.caching import _CacheLocator

HERE = Path(__file__).resolve().parents[1]  # kernels/
IMPORT = re.compile(r"^from coattail\.kernels\.([\w.]+) import", re.MULTILINE)


@cache
def content(name: str) -> str:
    """A digest of a kernel file and of those it imports, directly or through others."""
    digest = hashlib.sha256()
    for one in sorted(_reached(name)):
        digest.update(one.encode() + b"\0" + _file(one).read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _file(name: str) -> Path:
    return HERE.joinpath(*name.split(".")).with_suffix(".py")


def _reached(name: str) -> set[str]:
    todo, seen = [name], {name}
    while todo:
        source = _file(todo.pop()).read_text(encoding="utf-8")
        found = set(IMPORT.findall(source)) - seen
        seen |= found
        todo += found
    return seen


def folder() -> Path:
    """COATTAIL_KERNEL_CACHE, else coattail/kernels in the user's cache folder."""
    given = os.environ.get("COATTAIL_KERNEL_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(home) / "coattail" / "kernels"


class ByContent(_CacheLocator):
    """Tells numba where to cache the functions of this folder."""

    def __init__(self, py_func, py_file):
        self._stem = ".".join(Path(py_file).resolve().relative_to(HERE).with_suffix("").parts)
        self._place = f"{self._stem}-{py_func.__code__.co_firstlineno}"

    def get_cache_path(self):
        return str(folder() / f"{self._stem}-{content(self._stem)}")

    def get_source_stamp(self):
        return content(self._stem)

    def get_disambiguator(self):
        return self._place

    @classmethod
    def from_function(cls, py_func, py_file):
        if HERE not in Path(py_file).resolve().parents:
            return None
        locator = cls(py_func, py_file)
        try:
            locator.ensure_cache_path()
        except OSError:  # a read-only home: let numba look for another place
            return None
        return locator
