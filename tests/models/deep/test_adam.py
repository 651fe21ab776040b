"""Our Adam of the transfer models is torch's, byte for byte."""

from __future__ import annotations

import pytest
import torch

from coattail.models.deep.training.optimiser import BLOCK
from coattail.models.deep.training.plain_adam import PlainAdam

SIZES = ((3,), (5, 7), (BLOCK + 13,), (2, BLOCK), ())


@pytest.mark.parametrize("beta2", [0.999, 0.99])
def test_it_is_torchs(beta2):
    ours, theirs = (
        [torch.nn.Parameter(torch.randn(size, generator=draws)) for size in SIZES]
        for draws in (torch.Generator().manual_seed(0), torch.Generator().manual_seed(0))
    )
    mine = PlainAdam([(ours[:2], 1e-3), (ours[2:], 1e-2)], beta2)
    groups = [{"params": theirs[:2], "lr": 1e-3}, {"params": theirs[2:], "lr": 1e-2}]
    torchs = torch.optim.Adam(groups, betas=(0.9, beta2))
    draws = torch.Generator().manual_seed(1)
    for step in range(7):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(p.shape, generator=draws) * 10.0 ** (step - 4)
            q.grad = p.grad.clone()
        if step < 2:  # one that takes part later: steps are counted per parameter
            ours[0].grad = theirs[0].grad = None
        mine.step()
        torchs.step()
        for p, q in zip(ours, theirs, strict=True):
            assert torch.equal(p, q)
    mine.zero_grad()
    assert all(p.grad is None for p in ours)
