"""Threads for kernels that release the GIL: their number changes the time, never a result."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from coattail import cores

Task = TypeVar("Task")
Result = TypeVar("Result")

VARIABLES = ("COATTAIL_THREADS", "NUMBA_NUM_THREADS")  # the stages set the second


def threads() -> int:
    """COATTAIL_THREADS, else NUMBA_NUM_THREADS, else the cores this process may use."""
    for name in VARIABLES:
        wanted = os.environ.get(name, "")
        if wanted.isdigit() and int(wanted) > 0:
            return int(wanted)
    return cores.available()


def each(function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
    """Run ``function`` on every task in threads; yields results in the order of the tasks.

    An exception or an interrupt by the user cancels the tasks that have not started.
    """
    tasks = list(tasks)
    if threads() == 1 or len(tasks) < 2:
        yield from map(function, tasks)
        return
    pool = ThreadPoolExecutor(threads(), thread_name_prefix="coattail")
    try:
        yield from pool.map(function, tasks)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def chunks(n: int, size: int) -> list[tuple[int, int]]:
    """Ranges (start, stop) of at most ``size`` that cover 0..n."""
    return [(start, min(start + size, n)) for start in range(0, n, size)]
