"""A real `mlflow server` on a SQLite store, for tests that look at its pages."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mlflow_server(folder: Path, seconds: float = 300) -> Iterator[str]:
    """Its address once it answers; stopped with all its workers at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    env = os.environ | {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # a handful of processes nobody needs
    }
    with open(folder / "server.log", "w") as log:
        server = subprocess.Popen(words, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + seconds
        while not _answers(f"{address}/health"):
            said = (folder / "server.log").read_text()[-2000:]
            assert server.poll() is None, f"mlflow server ended:\n{said}"
            assert time.monotonic() < deadline, f"mlflow server does not answer:\n{said}"
            time.sleep(0.3)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
