"""Where work runs: in this process, in a pool of processes here, or on a Dask cluster.

``here`` one task after another; ``pool:4`` four processes on this machine;
``tcp://scheduler:8786`` (or ``tls://``, or ``file:PATH`` of a scheduler file, as clusters under
Slurm write it) the workers of a Dask cluster. What a task computes never depends on the choice.
"""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from coattail import __version__
from coattail.errors import CoattailError, ConfigError

Task = TypeVar("Task")
Value = TypeVar("Value")

CONNECT_SECONDS = 30


@dataclass(frozen=True)
class Outcome(Generic[Value]):
    """What became of one task: its value, or the error that ended it."""

    number: int
    value: Value | None
    error: Exception | None


class Engine(Protocol):
    """Runs tasks; one that fails does not stop the others."""

    def each(
        self, function: Callable[[Task], Value], tasks: Sequence[Task]
    ) -> Iterator[Outcome[Value]]:
        """``function(task)`` for every task, as they finish; ``number`` is the task's place."""


@contextmanager
def open_engine(where: str) -> Iterator[Engine]:
    """The engine that ``where`` names; closed, with its pool or connection, at the end."""
    pool = re.fullmatch(r"pool:(\d+)", where)
    if where == "here":
        yield Here()
    elif pool and int(pool[1]) > 0:
        # Spawned, not forked: threads of numba and torch do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(int(pool[1]), mp_context=context) as executor:
            yield Pool(executor)
    elif where.startswith(("tcp://", "tls://", "file:")):
        client = _connect(where)
        try:
            yield Dask(client)
        finally:
            client.close()
    else:
        raise ConfigError(
            f"no place to run called {where!r}; wanted here, pool:4, tcp://scheduler:8786, "
            "tls://scheduler:8786 or file:scheduler.json"
        )


class Here:
    """One task after another in this process."""

    def each(
        self, function: Callable[[Task], Value], tasks: Sequence[Task]
    ) -> Iterator[Outcome[Value]]:
        for number, task in enumerate(tasks):
            try:
                yield Outcome(number, function(task), None)
            except Exception as error:
                yield Outcome(number, None, error)


class Pool:
    """Processes on this machine."""

    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self._executor = executor

    def each(
        self, function: Callable[[Task], Value], tasks: Sequence[Task]
    ) -> Iterator[Outcome[Value]]:
        numbers: dict[Future[Value], int] = {
            self._executor.submit(function, task): number for number, task in enumerate(tasks)
        }
        for future in as_completed(numbers):
            yield _outcome(numbers[future], future)


class Dask:
    """Workers of a Dask cluster. A worker that dies hands its task to another one."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def each(
        self, function: Callable[[Task], Value], tasks: Sequence[Task]
    ) -> Iterator[Outcome[Value]]:
        from distributed import as_completed as as_dask_completes

        # pure=False: the same task again is run again, not answered from memory.
        futures = [self._client.submit(function, task, pure=False) for task in tasks]
        numbers = {future.key: number for number, future in enumerate(futures)}
        for future in as_dask_completes(futures, loop=self._client.loop):
            yield _outcome(numbers[future.key], future)


def _outcome(number: int, future: Any) -> Outcome[Any]:
    try:
        return Outcome(number, future.result(), None)
    except Exception as error:
        return Outcome(number, None, error)


def _connect(where: str) -> Any:
    """A client of the cluster, once a worker is there and has the same coattail as we."""
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError(
            f"{where} is a Dask cluster, but distributed is not installed: "
            "pip install 'coattail[cluster]'"
        ) from None
    file = where.removeprefix("file:") if where.startswith("file:") else None
    target = {"scheduler_file": file} if file else {"address": where}
    try:
        client = Client(**target, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no Dask scheduler answers at {where}: {error}") from None
    try:
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        versions = client.run(_version)
    except TimeoutError:
        client.close()
        raise ConfigError(
            f"the Dask scheduler at {where} has no worker; start some: "
            f"dask worker {where} --nthreads 1"
        ) from None
    except Exception as error:
        client.close()
        raise ConfigError(
            f"a worker of {where} cannot import coattail: {error}; install it there too"
        ) from None
    strange = {worker: found for worker, found in versions.items() if found != __version__}
    if strange:
        client.close()
        worker, found = next(iter(strange.items()))
        raise CoattailError(
            f"worker {worker} has coattail {found}, here is {__version__}; install the same"
        )
    return client


def _version() -> str:
    return __version__
