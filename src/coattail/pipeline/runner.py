"""How a stage script starts: logging, signals, threads, and errors without a traceback."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field

from coattail import cores
from coattail.config import Params, load, parse, read_yaml
from coattail.errors import CoattailError, ConfigError
from coattail.models import begun_with
from coattail.pipeline import code_digest, model_digest, registry
from coattail.processor import Wanted, held, obstacle

log = logging.getLogger("coattail")


class RunSettings(Params):
    """Top-level settings of params.yaml about how work runs.

    The first two never change what it computes. The third does, in the last digits; stages/__init__
    reads it too, before anything is imported.
    """

    device: str = Field(
        "auto", description="where networks run: auto, cpu, cuda, cuda:1, mps; not part of a result"
    )
    threads: int = Field(
        0, description="threads; 0: all cores that this process may use; not part of a result"
    )
    processor: Wanted = Field(
        "any",
        description="any: the same bytes on every Intel or AMD processor with AVX2; native: "
        "whatever is fastest on this one",
    )


def settings() -> RunSettings:
    content = read_yaml("params.yaml")
    given = {key: content[key] for key in RunSettings.model_fields if key in content}
    settings: RunSettings = parse(given, RunSettings, "params.yaml: ")
    return settings


def start_logging() -> None:
    """Messages of coattail to stderr, one line each with the time."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("coattail")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def limit_threads(threads: int) -> int:
    """Set the thread count of every library that is imported later; return the count.

    Processes that torchrun started on this machine share the threads.
    """
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    count = max(1, (threads or cores.available()) // processes)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = str(count)
    if "numba" in sys.modules:
        # It has read the environment already. It must know before its first parallel kernel runs:
        # compiling another one later would find another number there, and refuse.
        with suppress(RuntimeError):  # too late: its threads run
            sys.modules["numba"].config.reload_config()
    # OpenMP threads that spin while they wait make two jobs on the same cores many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    return count


def run(main: Callable[..., None]) -> None:
    """``run(main)`` at the end of a stage script: arguments in, exit code out."""
    start_logging()
    # DVC and job schedulers stop a stage with SIGTERM; unwinding lets the run be closed properly.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if digest := code_digest.check_script(Path(sys.argv[0])):
            begun_with.set_code(digest + _check_models(Path(sys.argv[0]).stem, sys.argv[1:]))
        wanted = settings()
        limit_threads(wanted.threads)
        _warn_of_other_bytes(wanted.processor)
        main(*sys.argv[1:])
    except CoattailError as error:
        _fail(str(error))
    except MemoryError:
        _fail("out of memory; lower the memory parameters of this stage (see docs/how-to/run.md)")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _fail(f"no space left on the device while writing {error.filename or 'a file'}; free some")
    except KeyboardInterrupt:
        _fail("interrupted; run dvc repro again to go on", 130)


def _warn_of_other_bytes(wanted: Wanted) -> None:
    if wanted == "any" and obstacle():
        log.warning(
            "processor: any cannot be kept here (%s); results may differ in the last digits from "
            "those of Intel and AMD processors with AVX2",
            obstacle(),
        )


def _fail(message: str, code: int = 1) -> None:
    for line in message.split("\n"):
        log.error("error: %s", line)
    sys.exit(code)


def _check_models(stage: str, arguments: list[str]) -> str:
    """The digests of the models whose code a stage runs: its variant's, or every candidate's."""
    if stage in registry.OPENING:
        used = sorted(set(registry.used(read_yaml("params.yaml")).values()))
        return "".join(model_digest.check(registry.kind(*one)) for one in used)
    if stage not in registry.CHOOSING or not arguments:
        return ""
    registry.check_installed(read_yaml("params.yaml"))
    return model_digest.check(registry.kind_of(stage, _section(stage, arguments[0])))


def section(stage: str, variant: str | None, model: Any = None) -> Any:
    """The params of a stage or of one of its variants, as ``model`` or as the registry says."""
    where = f"{stage}.{variant}" if variant else stage
    if model is not None:
        _check_name(stage, variant)
        return load(where, model)
    return registry.parsed(stage, _section(stage, variant), f"params.yaml: {where}")


def _section(stage: str, variant: str | None) -> Any:
    _check_name(stage, variant)
    return load(f"{stage}.{variant}" if variant else stage, Any)


def _check_name(stage: str, variant: str | None) -> None:
    if variant is not None and "." in variant:
        raise ConfigError(f"params.yaml: {stage}.{variant}: a variant's name cannot hold a dot")


def partial(address: str) -> Path:
    """Where a stage keeps what lets it go on after an interrupt; removed when it is done."""
    folder = Path(".dvc/tmp/coattail")
    # What one processor began in its own way is nothing to go on from for the bytes of all.
    path = (folder / "any" if held() else folder) / address
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
