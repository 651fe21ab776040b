"""The processor that results are computed for: what is set, when, and what is in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coattail import processor

ROOT = Path(__file__).resolve().parents[1]
SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
pinned = pytest.mark.skipif(bool(processor.obstacle()), reason=processor.obstacle() or "none")


def environment_after(program: str, **given: str) -> dict[str, str]:
    """The environment that ``program`` leaves in a process of its own."""
    known = {processor.HELD, *processor.SETTINGS}
    base = {k: v for k, v in os.environ.items() if k not in known} | given
    words = [sys.executable, "-c", f"{program}\n{SHOW}"]
    done = subprocess.run(
        words,
        env=base | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def settled(wanted: str, **given: str) -> dict[str, str]:
    return environment_after(
        f"from coattail import processor\nprocessor.settle({wanted!r})", **given
    )


@pinned
def test_any_sets_all_settings_whatever_was_set_before():
    found = settled("any", OPENBLAS_CORETYPE="Zen", NPY_ENABLE_CPU_FEATURES="AVX2")
    assert processor.SETTINGS.items() <= found.items()
    assert found[processor.HELD] == "any"
    assert "NPY_ENABLE_CPU_FEATURES" not in found


def test_native_leaves_what_somebody_set_and_gives_blas_one_thread():
    found = settled("native", OPENBLAS_CORETYPE="Zen")
    assert found["OPENBLAS_CORETYPE"] == "Zen"
    assert found["OPENBLAS_NUM_THREADS"] == "1"
    assert not {processor.HELD, "ATEN_CPU_CAPABILITY", "NUMBA_CPU_NAME"} & set(found)


@pinned
def test_a_native_child_of_a_process_with_settings_is_without_them():
    found = settled("native", **settled("any"))
    assert not ({processor.HELD, *processor.SETTINGS} - {"OPENBLAS_NUM_THREADS"}) & set(found)


def test_once_numpy_is_there_nothing_is_set():
    program = "import numpy\nfrom coattail import processor\nprocessor.settle('any')"
    assert not {processor.HELD, *processor.SETTINGS} & set(environment_after(program))


def test_settling_imports_no_library_that_looks_at_the_processor():
    program = (
        "import sys\nfrom coattail import processor\nprocessor.settle('any')\n"
        "assert not {'numpy', 'torch', 'numba', 'scipy', 'pydantic'} & set(sys.modules)"
    )
    environment_after(program)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("processor: native  # fast\n", "native"),
        ("threads: 2\nprocessor:   any\n", "any"),
        ("threads: 2\n", "any"),
        ("a:\n  processor: native\n", "any"),
    ],
)
def test_what_is_wanted_stands_in_params(content, wanted, tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(content)
    assert processor.read_wanted(path) == wanted


def test_without_params_the_default_is_wanted(tmp_path):
    assert processor.read_wanted(tmp_path / "none.yaml") == "any"


def test_the_default_is_that_of_the_settings():
    from coattail.pipeline.runner import RunSettings

    assert RunSettings().processor == "any"


@pytest.mark.parametrize(
    ("machine", "flags", "word"),
    [
        ("arm64", "", "arm64"),
        ("x86_64", "sse2 avx", "AVX2"),
        ("x86_64", "avx avx2 fma", ""),
        ("AMD64", "", ""),
    ],
)
def test_an_obstacle_is_named(machine, flags, word, monkeypatch):
    monkeypatch.setattr(processor.platform, "machine", lambda: machine)
    monkeypatch.setattr(processor, "cpuinfo", lambda _: flags)
    assert word in processor.obstacle()
    assert bool(processor.obstacle()) == bool(word)
