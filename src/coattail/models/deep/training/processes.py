"""Several processes that train one model (torchrun): starting them, their leader, exchange."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from coattail.errors import ConfigError, DeviceError

WANTED = "COATTAIL_PROCESSES"
"""Environment variable: processes that a stage starts; it changes time, never a result."""

NONE, DENSE, SPARSE = 0, 1, 2


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))


def size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def leads() -> bool:
    """True in rank 0, the process that writes files and logs."""
    return rank() == 0


# --- beginning and end


def launch(module: str, *arguments: str, most: int | None = None) -> bool:
    """Run ``python -m module`` in as many processes as wanted and wait; False: only one is wanted.

    If there is work for ``most`` processes only, no more are started. The processes print their own
    errors; the first that fails ends all, and this one too.
    """
    wanted = os.environ.get(WANTED, "1")
    if not wanted.isdigit() or int(wanted) < 1:
        raise ConfigError(f"{WANTED}={wanted}; wanted a whole number from 1 on")
    count = int(wanted) if most is None else min(int(wanted), most)
    if count == 1 or "RANK" in os.environ:
        return False
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    command = ["--standalone", f"--nproc-per-node={count}", "-m", module, *arguments]
    try:
        run(parse_args(command))
    except ChildFailedError as error:
        failed = min(error.failures.values(), key=lambda failure: failure.timestamp)
        sys.exit(abs(failed.exitcode) or 1)
    return True


@contextmanager
def together(device: str) -> Iterator[str]:
    """Join the processes that torchrun started; the device of this one (several GPUs: its own)."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield device
        return
    if device.startswith("cuda"):
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    # Others wait while the leader evaluates; a process that dies is noticed at once.
    backend = "nccl" if device.startswith("cuda") else "gloo"
    dist.init_process_group(backend, timeout=timedelta(hours=2))
    if not leads():
        logging.getLogger("coattail").setLevel(logging.WARNING)
    try:
        yield device
    finally:
        dist.destroy_process_group()


@contextmanager
def _contact() -> Iterator[None]:
    """Turn a lost connection into a message that points to the process that failed."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise DeviceError(
            f"process {rank()} lost the others, so training ends ({reason}); the reason is in the "
            "message of the process that failed"
        ) from error


# --- exchange


def from_leader(value: float, device: str) -> float:
    """Broadcast a number of rank 0 to all processes."""
    if size() == 1:
        return value
    told = torch.tensor([value], dtype=torch.float64, device=device)
    with _contact():
        dist.broadcast(told, 0)
    return float(told)


def summed(values: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if size() > 1:
        with _contact():
            dist.all_reduce(values)
    return values


def check_same(what: str, value: float, device: str) -> None:
    """Raise DeviceError if the processes disagree: they would wait for each other for ever."""
    told = from_leader(value, device)
    different = torch.tensor([float(told != value)], device=device)
    if float(summed(different)):
        raise DeviceError(
            f"processes start at different {what} (process {rank()}: {value:g}, the first: "
            f"{told:g}); let all see the same .dvc/tmp, or remove the checkpoints there"
        )


@torch.no_grad()
def sum_gradients(parameters: dict[str, Tensor]) -> None:
    """Replace every gradient by its sum over the processes; sparse ones stay sparse."""
    if size() == 1 or not parameters:
        return
    device = next(iter(parameters.values())).device
    kinds = torch.tensor([_kind(p.grad) for p in parameters.values()], device=device)
    with _contact():
        dist.all_reduce(kinds, dist.ReduceOp.MAX)
        for kind, p in zip(kinds.tolist(), parameters.values(), strict=True):
            if kind == DENSE:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
                dist.all_reduce(p.grad)
            elif kind == SPARSE:
                p.grad = _sum_of_rows(p)


def _kind(gradient: Tensor | None) -> int:
    if gradient is None:
        return NONE
    return SPARSE if gradient.is_sparse else DENSE


def _sum_of_rows(p: Tensor) -> Tensor:
    """Sum sparse gradients over processes; rows are padded to one length for the exchange."""
    if p.grad is None:
        rows = torch.zeros(0, dtype=torch.int64, device=p.device)
        values = torch.zeros(0, *p.shape[1:], device=p.device, dtype=p.dtype)
    else:
        own = p.grad.coalesce()
        rows, values = own.indices()[0], own.values()
    counts = [torch.zeros(1, dtype=torch.int64, device=p.device) for _ in range(size())]
    dist.all_gather(counts, torch.tensor([len(rows)], device=p.device))
    longest = max(int(count) for count in counts)
    everybodys_rows = _gather(rows, longest)
    everybodys_values = _gather(values, longest)
    parts = [slice(0, int(count)) for count in counts]
    indices = torch.cat([r[part] for r, part in zip(everybodys_rows, parts, strict=True)])
    entries = torch.cat([v[part] for v, part in zip(everybodys_values, parts, strict=True)])
    total = torch.sparse_coo_tensor(indices.unsqueeze(0), entries, p.shape, check_invariants=False)
    return total.coalesce()


def _gather(values: Tensor, length: int) -> list[Tensor]:
    padded = values.new_zeros(length, *values.shape[1:])
    padded[: len(values)] = values
    received = [torch.empty_like(padded) for _ in range(size())]
    dist.all_gather(received, padded)
    return received
