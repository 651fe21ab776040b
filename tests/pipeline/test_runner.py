"""How a stage script ends: exit codes and messages without a traceback."""

import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from coattail import __version__, processor
from coattail.errors import ConfigError, DataError
from coattail.models import begun_with
from coattail.pipeline import runner


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["stage"])
    (tmp_path / "params.yaml").write_text("device: cpu\nthreads: 1\n")
    return tmp_path


def run(main) -> int:
    handler = signal.getsignal(signal.SIGTERM)
    environment = dict(os.environ)
    try:
        runner.run(main)
    except SystemExit as stop:
        return int(stop.code)
    finally:
        signal.signal(signal.SIGTERM, handler)
        os.environ.clear()
        os.environ.update(environment)
        if "numba" in sys.modules:
            with suppress(RuntimeError):
                sys.modules["numba"].config.reload_config()
    return 0


def failing(error):
    def main():
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (DataError("data/raw/train.jsonl:3: no labels"), 1, "train.jsonl:3: no labels"),
        (OSError(errno.ENOSPC, "No space left on device", "data/x"), 1, "no space left"),
        (MemoryError(), 1, "out of memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_end_with_a_code_and_one_clear_line(project, capfd, error, code, message):
    assert run(failing(error)) == code
    output = capfd.readouterr().err
    assert message in output
    assert "Traceback" not in output


def test_an_error_of_ours_is_not_hidden(project):
    with pytest.raises(ZeroDivisionError):
        run(failing(ZeroDivisionError()))


def test_a_stage_without_error_ends_with_zero(project):
    assert run(lambda: None) == 0


def test_threads_are_set_before_libraries_are_imported(project):
    seen = {}
    run(lambda: seen.update(os.environ))
    assert seen["NUMBA_NUM_THREADS"] == "1"


def test_fits_of_a_stage_know_the_digest_of_its_code(project, monkeypatch):
    monkeypatch.setattr(begun_with, "_code", begun_with.code())  # put back afterwards
    seen = []
    run(lambda: seen.append(begun_with.code()))
    monkeypatch.setattr(runner.code_digest, "check_script", lambda script: "a digest")
    run(lambda: seen.append(begun_with.code()))
    assert seen == [f"coattail {__version__}", "a digest"]


def test_a_library_that_was_imported_before_learns_of_the_threads():
    """Else numba refuses to compile once a parallel kernel has run."""
    code = (
        "import os, numba; from coattail.pipeline.runner import limit_threads\n"
        "limit_threads(1)\n"
        "from numba.np.ufunc import parallel as threads; threads._launch_threads()\n"
        "print(numba.config.NUMBA_NUM_THREADS, numba.njit(lambda n: n + 1)(2))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "3"]


def test_a_wrong_setting_is_refused(project):
    (project / "params.yaml").write_text("threads: many\n")
    with pytest.raises(ConfigError, match="threads"):
        runner.settings()


def test_work_begun_natively_is_not_continued_for_the_bytes_of_all(project, monkeypatch):
    monkeypatch.delenv(processor.HELD, raising=False)
    native = runner.partial("train_deep@a.ckpt")
    monkeypatch.setenv(processor.HELD, "any")
    assert runner.partial("train_deep@a.ckpt") != native
    assert native.parent.is_dir()


def test_a_machine_that_cannot_keep_the_promise_is_told(project, monkeypatch, caplog):
    (project / "params.yaml").write_text("processor: any\n")
    monkeypatch.setattr(runner, "obstacle", lambda: "its processor lacks AVX2")
    runner._warn_of_other_bytes("native")
    assert not caplog.records
    runner._warn_of_other_bytes("any")
    assert "lacks AVX2" in caplog.text


def test_a_variant_with_a_dot_is_refused(project):
    with pytest.raises(ConfigError, match="dot"):
        runner.section("train_linear", "a.b", runner.RunSettings)


def test_sigterm_unwinds_the_stage(project):
    code = (
        "import time; from coattail.pipeline import runner\n"
        "def main():\n"
        "    try:\n        print('ready', flush=True); time.sleep(60)\n"
        "    finally:\n        open('unwound', 'w').close()\n"
        "runner.run(main)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert worker.stdout.readline() == b"ready\n"
    time.sleep(0.2)
    worker.terminate()
    assert worker.wait(timeout=30) == 143
    assert (project / "unwound").exists()
