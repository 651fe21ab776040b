"""A batch cut into pieces: gradients do not depend on which thread or process computes them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coattail.models.deep import device as devices
from coattail.models.deep.training import processes

Each = Callable[..., list[Any]]
"""Like map, with the results in a list."""
# Gradients of one piece: a net, its rows, and the number of the piece -> mean loss of the piece.
Task = Callable[[nn.Module, NDArray[np.int64], int], Tensor]


def works_alone(net: nn.Module, device: str) -> bool:
    """Whether threads can run the net side by side: on a CPU, without global random numbers."""
    return device == "cpu" and bool(getattr(net, "in_threads", False))


@contextmanager
def workers(threads: int, alone: bool = True) -> Iterator[Each]:
    """A map over threads that compute alone (0: as many as torch uses).

    torch would split single operations between threads, and the sums inside them would then depend
    on the number of threads. Here every operation runs in one thread; threads take whole pieces.
    Not ``alone``: one item after the other, and operations are split (``device.undivided``).
    """
    before = torch.get_num_threads()
    if not alone:
        with devices.threads(devices.undivided(threads or before)):
            yield in_turn
        return
    torch.set_num_threads(1)
    try:
        if (threads or before) == 1:
            yield in_turn
            return
        with ThreadPoolExecutor(
            threads or before, initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            yield lambda function, *items: list(pool.map(function, *items))
    finally:
        torch.set_num_threads(before)


def in_turn(function: Callable[..., Any], *items: Any) -> list[Any]:
    """One item after the other, in this thread."""
    return list(map(function, *items))


class Pieces:
    """Gradients of a batch as the sum over its pieces, in one order.

    Piece i holds every ``count``-th text of the batch from the i-th on. Each process takes a run of
    pieces; each piece has its own copy of the net, which shares the weights but not the gradients.
    """

    def __init__(
        self, net: nn.Module, weights: dict[str, Tensor], wanted: int, device: str
    ) -> None:
        self.weights, self.device = weights, device
        self.alone = works_alone(net, device)
        self.count = max(wanted if self.alone else 1, processes.size())
        everybody, me = processes.size(), processes.rank()
        self.mine = [i for i in range(self.count) if i * everybody // self.count == me]
        self.nets = [net, *(_twin(net) for _ in self.mine[1:])]

    def backward(self, rows: NDArray[np.int64], task: Task, each: Each) -> float:
        """Leave the gradients of the mean loss over ``rows`` in the weights; the loss."""
        work = [
            (net, rows[i :: self.count], i) for net, i in zip(self.nets, self.mine, strict=True)
        ]
        work = [(net, part, i) for net, part, i in work if len(part)]

        def run(net: nn.Module, part: NDArray[np.int64], piece: int) -> float:
            loss = float(task(net, part, piece))
            self._scale(net, len(part) / len(rows))
            return loss

        found = each(run, *zip(*work, strict=True)) if work else []
        losses = torch.zeros(self.count, dtype=torch.float64)
        for (_, part, piece), loss in zip(work, found, strict=True):
            losses[piece] = loss * len(part) / len(rows)
        each(self._sum, list(self.weights))
        processes.sum_gradients(self.weights)
        if processes.size() > 1:
            losses = processes.summed(losses.to(self.device))
        return float(sum(losses.tolist()))

    def _scale(self, net: nn.Module, share: float) -> None:
        with torch.no_grad():
            for p in net.parameters():
                if p.grad is not None and p.grad.is_sparse:
                    p.grad = p.grad.coalesce() * share if share < 1 else p.grad.coalesce()
                elif p.grad is not None and share < 1:
                    p.grad.mul_(share)

    @torch.no_grad()
    def _sum(self, name: str) -> None:
        """Add the pieces' gradients of one parameter, neighbours first."""
        owners = [net.get_parameter(name) for net in self.nets]
        parts = [p.grad for p in owners if p.grad is not None]
        while len(parts) > 1:
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            parts = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
        for p in owners:
            p.grad = None
        if parts:
            owners[0].grad = parts[0].coalesce() if parts[0].is_sparse else parts[0]


def _twin(net: nn.Module) -> nn.Module:
    """The same net with the same numbers in memory, but gradients of its own."""
    shared: dict[int, Any] = {id(b): b for b in net.buffers()}
    for p in net.parameters():
        shared[id(p)] = nn.Parameter(p.detach(), requires_grad=p.requires_grad)
    return copy.deepcopy(net, shared)
