"""How many cores this process may use, by its affinity and by the limits of a container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coattail import cores

ALL = len(os.sched_getaffinity(0))


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of eight cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))


def machine(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    for name, content in {"proc/self/cgroup": cgroup, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return root


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("250000 100000", 3),
        ("50000 100000", 1),
        ("1600000 100000", 8),
    ],
)
def test_quota_of_version_2_limits_the_cores(
    tmp_path: Path, many: None, limit: str, wanted: int
) -> None:
    assert cores.available(machine(tmp_path, "0::/", {"sys/fs/cgroup/cpu.max": limit})) == wanted


def test_limit_of_an_outer_group_holds_for_the_inner_ones(tmp_path: Path, many: None) -> None:
    files = {
        "sys/fs/cgroup/jobs.slice/cpu.max": "300000 100000",
        "sys/fs/cgroup/jobs.slice/job1/cpu.max": "max 100000",
    }
    assert cores.available(machine(tmp_path, "0::/jobs.slice/job1", files)) == 3
    files["sys/fs/cgroup/jobs.slice/job1/cpu.max"] = "200000 100000"
    assert cores.available(machine(tmp_path, "0::/jobs.slice/job1", files)) == 2


@pytest.mark.parametrize(("quota", "wanted"), [("-1", 8), ("400000", 4), ("10000", 1)])
@pytest.mark.parametrize("group", ["/", "/docker/0123"])
def test_quota_of_version_1_limits_the_cores(
    tmp_path: Path, many: None, quota: str, wanted: int, group: str
) -> None:
    # A container sees its own limits at the top, though its path may be that of the machine.
    files = {
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": quota,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
    }
    lines = f"5:memory:{group}\n4:cpu,cpuacct:{group}\n0::/"
    assert cores.available(machine(tmp_path, lines, files)) == wanted


def test_without_control_groups_the_affinity_counts(tmp_path: Path, many: None) -> None:
    assert cores.available(tmp_path) == 8


def test_elsewhere_than_on_linux_all_cores_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert cores.available(tmp_path) == 6


ASKED = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from coattail import cores
from coattail.kernels.runtime import pool
from coattail.pipeline import runner
print(cores.available(), pool.threads(), runner.limit_threads(0), os.environ["OMP_NUM_THREADS"])
import torch
from coattail.models.deep.device import threads
with threads(0):
    print(torch.get_num_threads())
"""


@pytest.mark.skipif(ALL < 2, reason="one core has no smaller affinity")
def test_everybody_keeps_to_the_affinity_of_the_process() -> None:
    names = ("COATTAIL_THREADS", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1"] * 5
