"""torch's LSTM with steps of our own on a CPU: as fast, and the same bytes on every processor.

torch hands it to oneDNN there, whose sums depend on the sizes of the processor's caches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coattail.kernels import lstm


class Lstm(nn.LSTM):
    """One layer, one direction; (B, T, in) -> states (B, T, hidden). Weights as torch has them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__(dim, hidden, batch_first=True)

    def forward(self, x: Tensor, start: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """``start`` are the state and the cell before the first word, (B, hidden) each."""
        if start is None:
            start = (x.new_zeros(len(x), self.hidden_size),) * 2
        if x.device.type != "cpu":
            h, c = (one.unsqueeze(0).contiguous() for one in start)
            return super().forward(x, (h, c))[0]
        bias = self.bias_ih_l0 + self.bias_hh_l0
        gates = F.linear(x.transpose(0, 1), self.weight_ih_l0, bias)  # (T, B, 4 hidden)
        return _Steps.apply(gates, self.weight_hh_l0, *start).transpose(0, 1)


class _Steps(torch.autograd.Function):
    """What the inputs give to the gates (T, B, 4 H), weights (4 H, H), start: states (T, B, H)."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weights: Tensor, state: Tensor, cell: Tensor) -> Tensor:
        steps, batch, _ = gates.shape
        width = weights.shape[1]
        states = torch.empty(steps, batch, width)
        cells, squashed = torch.empty(steps + 1, batch, width), torch.empty_like(states)
        cells[0] = cell
        gates = gates.detach().clone(memory_format=torch.contiguous_format)
        turned = weights.detach().t().contiguous()
        arrays = (gates, turned, state.detach().contiguous(), cells, squashed, states)
        lstm.forward(*(each.numpy() for each in arrays))
        ctx.save_for_backward(gates, weights, state, cells, squashed, states)
        return states

    @staticmethod
    def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor, ...]:
        gates, weights, state, cells, squashed, states = ctx.saved_tensors
        d_gates = torch.empty_like(gates)
        d_state, d_cell = torch.zeros_like(states[0]), torch.zeros_like(states[0])
        given = (gates, weights, cells, squashed, d_states.contiguous())
        arrays = (*given, d_gates, d_state, d_cell)
        lstm.backward(*(np.ascontiguousarray(each.detach().numpy()) for each in arrays))
        before = torch.cat([state.unsqueeze(0), states[:-1]]).flatten(0, 1)
        return d_gates, d_gates.flatten(0, 1).t() @ before, d_state, d_cell
