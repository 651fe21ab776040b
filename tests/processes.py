"""Processes that tests start: on free ports, in temporary folders, and never left behind."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

BIN = Path(sys.executable).parent
PATIENCE = 300  # seconds until a service must answer; machines that run tests are often busy
# Of commands in clones: commits need an author.
AUTHOR = {
    "DVC_NO_ANALYTICS": "true",
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.org",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org",
}


def free_ports(count: int) -> list[int]:
    """Different free ports; all are held until the last one is found."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def clean_environment() -> dict[str, str]:
    """Ours without what would point a test at somebody's real server or storage."""
    foreign = ("MLFLOW_", "AWS_", "PG", "DVC_", "COATTAIL_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    return kept | {"PATH": f"{BIN}:{os.environ['PATH']}", "MLFLOW_DISABLE_TELEMETRY": "true"}


def wait_until(ready: Callable[[], bool], processes: list[subprocess.Popen]) -> None:
    """Wait for something that running processes bring about; fail as soon as one of them ends."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < deadline, "waited in vain"
        ended = [process for process in processes if process.poll() is not None]
        assert not ended, ended[0].communicate()
        time.sleep(0.05)


class Process:
    """A service in its own process group, with its log; it dies with the tests."""

    def __init__(self, words: list, log: Path, *, env=None, user=None, cwd=None, stop="TERM"):
        self.words, self.log, self.stop_signal = words, log, signal.Signals[f"SIG{stop}"]
        kernel = ctypes.CDLL(None)

        def die_with_parent() -> None:
            kernel.prctl(1, int(self.stop_signal))  # 1: PR_SET_PDEATHSIG

        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                [str(word) for word in words],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=env or clean_environment(),
                cwd=cwd,
                start_new_session=True,
                preexec_fn=die_with_parent,
                **({"user": user, "group": pwd.getpwnam(user).pw_gid} if user else {}),
            )

    def wait_for(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError, subprocess.SubprocessError):
                if ready():
                    return
            ended = self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                text = self.log.read_text(errors="replace")[-3000:]
                how = f"ended with {self.process.returncode}" if ended else "does not answer"
                raise RuntimeError(f"{self.words[0]} {how}:\n{text}")
            time.sleep(0.2)

    def stop(self, patience: float = 15) -> None:
        """End it as it likes to be ended, then without asking; its children too."""
        if self.process.poll() is None:
            self.process.send_signal(self.stop_signal)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        self.kill()

    def kill(self) -> None:
        """End the whole group at once, as a power cut would."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


@contextmanager
def temporary_folder(name: str, owner: str | None = None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix=f"coattail-{name}-"))
    try:
        if owner:
            shutil.chown(path, owner)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
