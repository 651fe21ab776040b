"""How many cores this process may use: the one count for threads, pools and records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path

NO_LIMIT = ("max", "-1")  # as version 2 and version 1 of control groups say it


def available(root: Path = Path("/")) -> int:
    """Cores of the affinity mask, but no more than a container's quota pays for; at least one.

    A quota of 2.5 cores gives 3: two threads would leave half a core idle. ``root`` is where /proc
    and /sys are.
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:  # not on Linux
        count = os.cpu_count() or 1
    return max(1, min([count, *(ceil(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """Cores that each control group around this process may use, of those that have a limit."""
    for line in _words(root / "proc/self/cgroup", "\n"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":  # version 2: one tree for everything
            place, files = "", ["cpu.max"]
        elif "cpu" in controllers.split(","):
            place, files = controllers, ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        # Inside a container the path may be the machine's, and then only the top of it is there.
        inner = Path(path.lstrip("/"))
        for group in (inner, *inner.parents):
            folder = root / "sys/fs/cgroup" / place / group
            limit = [word for name in files for word in _words(folder / name)]
            if len(limit) == 2 and limit[0] not in NO_LIMIT:
                yield int(limit[0]) / int(limit[1])


def _words(path: Path, separator: str | None = None) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").strip().split(separator)
    except OSError:
        return []
