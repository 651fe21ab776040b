"""One set of instructions for every Intel or AMD processor, so that results have the same bytes.

Libraries look at the processor and choose among ways that round or add differently. They read their
settings when they are imported, so this comes before all of them and imports none. It concerns the
CPU: what a GPU computes it leaves alone.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import Literal

Wanted = Literal["any", "native"]

HELD = "COATTAIL_PROCESSOR"
"""Environment variable: ``any`` where the settings below are ours and hold."""

SETTINGS = {
    # numpy's and scipy's BLAS: kernels, blocks and threads decide the order of sums.
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_L2_SIZE": "512",
    "OPENBLAS_NUM_THREADS": "1",
    # numpy: other sorts break ties otherwise, other exponentials round otherwise. AVX2 is left out,
    # too: under emulation its sorting failed, and only what can be compared is certain.
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    # Our kernels: a sum in lanes adds in the order of their number.
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt",
    # torch; and MKL, for whatever still reaches it past models/deep/same_bits.py.
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
}


def read_wanted(params: Path = Path("params.yaml")) -> str:
    """``processor`` of params.yaml, without a parser: that would take longer than the rest."""
    try:
        found = re.search(r"^processor:\s*(\w+)", params.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else "any"


def settle(wanted: str) -> None:
    """Set the environment of this process and its children, before numpy is imported.

    Afterwards it is too late, and nothing is changed: half of the libraries would know.
    """
    if "numpy" in sys.modules:
        return
    ours = os.environ.pop(HELD, None) is not None
    if wanted == "any" and not obstacle():
        os.environ.pop("NPY_ENABLE_CPU_FEATURES", None)  # numpy refuses both
        os.environ.update(SETTINGS, **{HELD: "any"})
    elif ours:  # a parent's, and not wanted here
        for name in SETTINGS:
            os.environ.pop(name, None)
    # Also elsewhere: BLAS chooses its order of sums by the number of threads. Our kernels and torch
    # have threads of their own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def held() -> bool:
    """Whether this process computes the bytes that every processor computes."""
    return os.environ.get(HELD) == "any"


def settings() -> dict[str, str]:
    """Those of the settings above that are set, by us or by somebody else."""
    return {name: os.environ[name] for name in SETTINGS if name in os.environ}


def obstacle() -> str:
    """Why this machine cannot compute them; empty if it can."""
    machine = platform.machine()
    if machine.lower() not in ("x86_64", "amd64"):
        return f"its processor is {machine}, neither Intel's nor AMD's"
    flags = cpuinfo("flags").split()
    if flags and not {"avx2", "fma"} <= set(flags):
        return "its processor lacks AVX2"
    return ""


def name() -> str:
    """The processor's name as it gives it."""
    return cpuinfo("model name") or platform.processor() or platform.machine()


def capability() -> str:
    """The widest instructions that this processor has."""
    flags = set(cpuinfo("flags").split())
    known = ("avx512f", "avx2", "avx")
    return next((flag for flag in known if flag in flags), platform.machine())


def cpuinfo(field: str) -> str:
    """A line of what Linux tells about the first processor; empty elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            first = file.read(1 << 13)
    except OSError:
        return ""
    found = re.search(rf"^{field}\s*:\s*(.*)$", first, re.MULTILINE)
    return found[1].strip() if found else ""
