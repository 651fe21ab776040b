"""torch.optim.Adam step for step, without what torch's brings along.

Making torch's own loads the compiler behind ``torch.compile`` and sympy, which nothing here uses:
over a second per process. Weights come out with the same bytes (tests/models/deep/test_adam.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from coattail.models.deep.training.optimiser import BLOCK

EPS = 1e-8


class PlainAdam:
    """``groups`` are parameters and the size of their steps; all gradients are dense."""

    def __init__(
        self, groups: Iterable[tuple[Iterable[Tensor], float]], beta2: float, beta1: float = 0.9
    ) -> None:
        self.beta1, self.beta2 = beta1, beta2
        self.learned = [_Learned(p, lr) for parameters, lr in groups for p in parameters]

    def zero_grad(self) -> None:
        for one in self.learned:
            one.parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for one in self.learned:
            if one.parameter.grad is not None:
                one.step(self.beta1, self.beta2)


class _Learned:
    """A parameter and what Adam remembers of it."""

    def __init__(self, parameter: Tensor, lr: float) -> None:
        self.parameter, self.lr, self.steps = parameter, lr, 0
        self.first, self.second = torch.zeros_like(parameter), torch.zeros_like(parameter)

    def step(self, beta1: float, beta2: float) -> None:
        p, gradient = self.parameter.detach(), self.parameter.grad
        assert gradient is not None
        self.steps += 1
        rate = self.lr / (1 - beta1**self.steps)
        correction = math.sqrt(1 - beta2**self.steps)
        # In blocks that stay in the cache, as in ``optimiser.Adam``.
        size = BLOCK if p.device.type == "cpu" else max(p.numel(), 1)
        tensors = (p, gradient.contiguous(), self.first, self.second)
        for p_, g, m, v in zip(*(t.view(-1).split(size) for t in tensors), strict=True):
            m.lerp_(g, 1 - beta1)
            v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            p_.addcdiv_(m, (v.sqrt() / correction).add_(EPS), value=-rate)
