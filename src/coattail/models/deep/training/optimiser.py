"""The optimiser's parts, all resumable: Adam, gradient clipping by a queue of norms, averaging."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

BLOCK = 1 << 16  # numbers of a parameter that are updated at a time


def learned(net: nn.Module) -> dict[str, Tensor]:
    """The parameters of a net that training changes, by name."""
    return {name: p for name, p in net.named_parameters() if p.requires_grad}


class Optimiser(Protocol):
    """What the training loop asks of an optimiser."""

    scale: float
    """Factor on the step size, if the optimiser's sinks."""

    def step(self, each: Callable[..., Any]) -> None: ...

    def zero_grad(self) -> None: ...

    def state(self) -> dict[str, Tensor]: ...

    def restore(self, tensors: dict[str, Tensor], steps: int) -> None: ...


class Adam:
    """Adam with decoupled decay; rows of a sparse gradient are updated lazily.

    As in the published runs the small constant is added to the uncorrected root of the second
    moment. Decay touches dense parameters only. ``lr`` is one step size or one per parameter; it
    grows from zero over the first ``warmup`` steps, and is multiplied by ``scale``.
    """

    def __init__(
        self,
        parameters: dict[str, Tensor],
        lr: float | Mapping[str, float],
        beta2: float = 0.999,
        decay: float = 0.0,
        beta1: float = 0.9,
        eps: float = 1e-8,
        warmup: int = 0,
    ) -> None:
        self.parameters = parameters
        self.lr = {name: lr[name] if isinstance(lr, Mapping) else lr for name in parameters}
        self.beta1, self.beta2, self.decay, self.eps, self.warmup = beta1, beta2, decay, eps, warmup
        self.steps, self.scale = 0, 1.0
        self.first = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self.second = {name: torch.zeros_like(p) for name, p in parameters.items()}

    @torch.no_grad()
    def step(self, each: Callable[..., Any] = lambda f, items: [f(i) for i in items]) -> None:
        """One step of every parameter; ``each`` may share them out among threads."""
        self.steps += 1
        corrected = math.sqrt(1 - self.beta2**self.steps) / (1 - self.beta1**self.steps)
        corrected *= self.scale
        if self.steps < self.warmup:
            corrected *= self.steps / self.warmup
        each(lambda name: self._update(name, corrected), list(self.parameters))

    @torch.no_grad()
    def _update(self, name: str, corrected: float) -> None:
        p, rate = self.parameters[name], self.lr[name] * corrected
        m, v = self.first[name], self.second[name]
        if p.grad is None:
            return
        if p.grad.is_sparse:
            self._rows(p, p.grad, m, v, rate)
            return
        # In blocks that stay in the cache: every number is read and written once.
        size = BLOCK if p.device.type == "cpu" else max(p.numel(), 1)
        parts = (t.detach().view(-1).split(size) for t in (p, p.grad.contiguous(), m, v))
        for p_, g, m_, v_ in zip(*parts, strict=True):
            if self.decay:
                p_.mul_(1 - self.lr[name] * self.scale * self.decay)
            m_.lerp_(g, 1 - self.beta1)
            v_.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
            p_.addcdiv_(m_, v_.sqrt().add_(self.eps), value=-rate)

    def _rows(self, p: Tensor, grad: Tensor, m: Tensor, v: Tensor, rate: float) -> None:
        grad = grad.coalesce()
        rows, g = grad.indices()[0], grad.values()
        new_m = m.index_select(0, rows).lerp_(g, 1 - self.beta1)
        new_v = v.index_select(0, rows).mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
        m.index_copy_(0, rows, new_m)
        v.index_copy_(0, rows, new_v)
        p.index_add_(0, rows, new_m / new_v.sqrt().add_(self.eps), alpha=-rate)

    def zero_grad(self) -> None:
        for p in self.parameters.values():
            p.grad = None

    def state(self) -> dict[str, Tensor]:
        return {f"first.{k}": t for k, t in self.first.items()} | {
            f"second.{k}": t for k, t in self.second.items()
        }

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], steps: int) -> None:
        self.steps = steps
        for name in self.parameters:
            self.first[name].copy_(tensors[f"first.{name}"])
            self.second[name].copy_(tensors[f"second.{name}"])


class TorchAdam:
    """torch.optim.Adam byte for byte over named parameters; its steps do not sink.

    Making torch's own loads the compiler behind ``torch.compile`` and sympy: seconds that nothing
    here uses. Unlike ``Adam`` above it adds the small constant to the corrected root, counts the
    steps of each parameter by itself, and takes dense gradients only, as HTTN's runs did.
    """

    scale, beta1, eps = 1.0, 0.9, 1e-8

    def __init__(
        self, parameters: dict[str, Tensor], lr: Mapping[str, float], beta2: float
    ) -> None:
        self.parameters, self.lr, self.beta2 = parameters, lr, beta2
        self.moments: dict[str, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self, each: Callable[..., Any]) -> None:
        for name, p in self.parameters.items():
            if p.grad is not None:
                self._update(name, p, p.grad)

    def _update(self, name: str, p: Tensor, grad: Tensor) -> None:
        if name not in self.moments:
            kept = {key: torch.zeros_like(p.detach()) for key in ("exp_avg", "exp_avg_sq")}
            self.moments[name] = {"step": torch.zeros(())} | kept
        taken, m, v = self.moments[name].values()
        taken += 1
        steps = taken.item()
        rate = self.lr[name] / (1 - self.beta1**steps)
        root = (1 - self.beta2**steps) ** 0.5
        m.lerp_(grad, 1 - self.beta1)
        v.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)
        p.addcdiv_(m, (v.sqrt() / root).add_(self.eps), value=-rate)

    def zero_grad(self) -> None:
        for p in self.parameters.values():
            p.grad = None

    def state(self) -> dict[str, Tensor]:
        """A parameter has a state once it has had a gradient."""
        return {
            f"{key}.{name}": tensor
            for name, kept in self.moments.items()
            for key, tensor in kept.items()
        }

    def restore(self, tensors: dict[str, Tensor], steps: int) -> None:
        for name, p in self.parameters.items():
            if f"step.{name}" in tensors:
                places = {"step": "cpu", "exp_avg": p.device, "exp_avg_sq": p.device}
                self.moments[name] = {
                    key: tensors[f"{key}.{name}"].to(place) for key, place in places.items()
                }


class NormQueue:
    """Clips the gradient to 5 times the largest of the last norms (each remembered capped)."""

    def __init__(self, size: int) -> None:
        self.norms: deque[float] = deque([math.inf], maxlen=size)

    def limit(self) -> float:
        return 5 * max(self.norms)

    def push(self, norm: float) -> None:
        self.norms.append(min(norm, 2 * max(self.norms), 1.0))

    def clip(self, parameters: dict[str, Tensor]) -> float:
        """Scale the gradients in place; the norm before scaling."""
        parts = []
        for p in parameters.values():
            if p.grad is None:
                continue
            if p.grad.is_sparse:
                p.grad = p.grad.coalesce()
                parts.append(p.grad.values().norm())
            else:
                parts.append(p.grad.norm())
        norm = float(torch.stack(parts).norm())
        limit = self.limit()
        if norm > limit:
            for p in parameters.values():
                if p.grad is not None:
                    p.grad.mul_(limit / norm)
        self.push(norm)
        return norm


class WeightAverage:
    """Stochastic weight averaging: the running mean of the weights at every evaluation."""

    def __init__(self, parameters: dict[str, Tensor]) -> None:
        self.parameters = parameters
        self.count = 0
        self.mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def start(self) -> None:
        """Copy the weights: count 1."""
        self.mean = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.count = 1

    @torch.no_grad()
    def update(self) -> None:
        if not self.count:
            return
        self.count += 1
        for name, p in self.parameters.items():
            self.mean[name].add_((p - self.mean[name]) / self.count)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange weights and averages; nothing before averaging has started."""
        for name, mean in self.mean.items():
            p = self.parameters[name]
            kept = p.detach().clone()
            p.copy_(mean)
            mean.copy_(kept)
