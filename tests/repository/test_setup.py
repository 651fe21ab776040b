"""`make repro` and `make test` on a machine that is not ready: one clear sentence, early."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "dirname", "cat", "cksum", "tr", "df", "awk", "rm", "touch", "grep", "git", "env")


@pytest.fixture
def machine(tmp_path):
    """A clone and a PATH that holds only what a test puts there."""
    clone = tmp_path / "clone"
    (clone / "scripts").mkdir(parents=True)
    for name in ("scripts/setup.sh", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, clone / name)
    subprocess.run(["git", "init", "-q"], cwd=clone, check=True)
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in TOOLS:
        (tools / tool).symlink_to(shutil.which(tool))
    return clone, tools


def python(tools: Path, name: str, version: str) -> None:
    """A stand-in that tells a version and claims to have every module."""
    path = tools / name
    path.write_text(
        f'#!/usr/bin/env bash\n[[ "$2" == *version_info* ]] && echo {version}\nexit 0\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def setup(machine, **environment: str) -> subprocess.CompletedProcess:
    clone, tools = machine
    return subprocess.run(
        ["bash", "scripts/setup.sh"],
        cwd=clone,
        env={"PATH": str(tools), "HOME": os.environ.get("HOME", "/")} | environment,
        capture_output=True,
        text=True,
    )


def test_no_git(machine):
    (machine[1] / "git").unlink()
    done = setup(machine)
    assert done.returncode == 1
    assert "git is not installed" in done.stderr


def test_no_clone(machine):
    shutil.rmtree(machine[0] / ".git")
    done = setup(machine)
    assert done.returncode == 1
    assert "not a git clone" in done.stderr


def test_no_python(machine):
    done = setup(machine)
    assert done.returncode == 1
    assert "python3 is not installed" in done.stderr


def test_python_too_old(machine):
    python(machine[1], "python3", "3.9")
    done = setup(machine)
    assert done.returncode == 1
    assert "Python 3.11 is needed" in done.stderr
    assert "python3 is 3.9" in done.stderr


def test_another_python_is_taken_where_the_default_is_too_old(machine):
    python(machine[1], "python3", "3.9")
    python(machine[1], "python3.11", "3.11")
    done = setup(machine, COATTAIL_NEEDED_GB="100000000")
    assert "Python 3.11 is needed" not in done.stderr


def test_no_space(machine):
    python(machine[1], "python3", "3.11")
    done = setup(machine, COATTAIL_NEEDED_GB="100000000")
    assert done.returncode == 1
    assert "GB free here, 100000000 GB are needed" in done.stderr
    assert not (machine[0] / ".venv").exists()


def test_a_ready_environment_is_left_alone(machine):
    python(machine[1], "python3", "3.11")
    clone = machine[0]
    code = "cat requirements.lock pyproject.toml | cksum | tr -d ' '"
    stamp = subprocess.run(["bash", "-c", code], cwd=clone, capture_output=True, text=True).stdout
    (clone / ".venv").mkdir()
    (clone / ".venv" / f".coattail-{stamp.strip()}").touch()
    done = setup(machine)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_package_of_the_lock_is_installed_by_one_of_the_two_halves(machine):
    clone, tools = machine
    python(tools, "python3", "3.11")
    (clone / ".venv" / "bin").mkdir(parents=True)
    noting = clone / ".venv" / "bin" / "python"
    noting.write_text(
        "#!/usr/bin/env bash\n"
        'for word in "$@"; do [[ $word == /dev/fd/* ]] && cat "$word" >> asked; done\nexit 0\n'
    )
    noting.chmod(noting.stat().st_mode | stat.S_IEXEC)
    done = setup(machine)
    assert done.returncode == 0, done.stderr
    lock = (clone / "requirements.lock").read_text().splitlines()
    asked = (clone / "asked").read_text().splitlines()
    assert sorted(asked) == sorted(line for line in lock if not line.startswith("#"))


def test_a_half_that_fails_stops_the_setup_and_leaves_no_stamp(machine):
    clone, tools = machine
    python(tools, "python3", "3.11")
    (clone / ".venv" / "bin").mkdir(parents=True)
    failing = clone / ".venv" / "bin" / "python"
    failing.write_text('#!/usr/bin/env bash\n[[ "$*" == *--requirement* ]] && exit 1\nexit 0\n')
    failing.chmod(failing.stat().st_mode | stat.S_IEXEC)
    done = setup(machine)
    assert done.returncode == 1
    assert "could not be installed" in done.stderr
    assert not list((clone / ".venv").glob(".coattail-*"))
