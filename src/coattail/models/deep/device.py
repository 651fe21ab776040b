"""Where tensors live: names resolved once, and out-of-memory errors that say what to lower."""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from coattail import cores, processor
from coattail.errors import DeviceError
from coattail.models.deep import same_bits

log = logging.getLogger("coattail")


def resolve(wanted: str) -> str:
    """The device to use: ``auto`` takes the first GPU if there is one; a name must exist.

    Every fitting and every loading comes here first, so here torch learns how to compute.
    """
    same_bits.settle()
    if wanted == "auto":
        if torch.cuda.is_available():
            return "cuda:0"
        return "mps" if _has_mps() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise DeviceError(f"device {wanted!r} is unknown; use auto, cpu, cuda, cuda:1 or mps")
    if device.type == "cuda":
        index, count = device.index or 0, torch.cuda.device_count()
        if not torch.cuda.is_available() or index >= count:
            raise DeviceError(
                f"device {wanted!r} was asked for but this machine shows {count} CUDA devices; "
                "use device: cpu or auto, or check the driver"
            )
        return f"cuda:{index}"
    if device.type == "mps" and not _has_mps():
        raise DeviceError("device 'mps' was asked for but this machine has none; use cpu or auto")
    return device.type


def _has_mps() -> bool:
    return bool(torch.backends.mps.is_available())


@contextmanager
def explain_memory(device: str, **lower: int) -> Iterator[None]:
    """Turn an out-of-memory error into a DeviceError that names the parameters to lower."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not _is_memory_error(error):
            raise
        current = ", ".join(f"{name} (now {value})" for name, value in lower.items())
        raise DeviceError(
            f"{device} ran out of memory ({str(error).splitlines()[0]}); lower {current}"
        ) from error


def _is_memory_error(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text


def autocast(device: str) -> torch.autocast:
    """Mixed precision where it pays: bfloat16 products on CUDA, nothing elsewhere.

    Losses are float32 (``loss.cross_entropy``), and so are the LSTM and the optimiser.
    """
    return torch.autocast("cuda", torch.bfloat16, enabled=device.startswith("cuda"))


def usage(device: str) -> dict[str, float]:
    """Memory and work of a GPU since the last call; nothing for other devices."""
    if not device.startswith("cuda"):
        return {}
    numbers = {"gpu_memory_mb": torch.cuda.max_memory_allocated(device) / 2**20}
    torch.cuda.reset_peak_memory_stats(device)
    # Utilisation needs the package nvidia-ml-py and a driver that answers.
    with suppress(ModuleNotFoundError, RuntimeError):
        numbers["gpu_utilisation_percent"] = float(torch.cuda.utilization(device))
    return numbers


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use ``count`` CPU threads inside the block.

    0: as many as torch would, but no more than this process may use: torch knows no containers.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count or min(before, cores.available()))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def undivided(count: int) -> int:
    """Threads for a model whose operations torch splits, when it may use ``count``.

    Where the bytes are to be those of every processor it is one: sums inside an operation depend on
    how it was split, and machines have different numbers of cores.
    """
    return 1 if processor.held() else count


def keep_freed_memory() -> None:
    """Tell glibc to reuse big blocks instead of returning them to the system after every step.

    A training step frees and asks for the same hundred megabytes again and again; without this
    a good part of the time on a CPU goes into page faults.
    """
    if not sys.platform.startswith("linux"):
        return
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # M_* of malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library: only slower
        return
    mallopt(mmap_max, 0)
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 64 * 2**20)
