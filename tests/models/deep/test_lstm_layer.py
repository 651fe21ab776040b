"""Our LSTM beside torch's: the same states, gradients and weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coattail.models.deep.nets.layers import BiLstm, initialise
from coattail.models.deep.nets.lstm_layer import Lstm


def both(dim: int, hidden: int) -> tuple[Lstm, nn.LSTM]:
    ours, theirs = Lstm(dim, hidden), nn.LSTM(dim, hidden, batch_first=True)
    for name, weight in ours.named_parameters():
        bound = 0.1 if name.startswith("bias") else hidden**-0.5
        nn.init.uniform_(weight, -bound, bound, generator=torch.Generator().manual_seed(len(name)))
    theirs.load_state_dict(ours.state_dict())  # names and shapes are torch's
    return ours, theirs


@pytest.mark.parametrize(("batch", "width", "dim", "hidden"), [(1, 1, 3, 2), (6, 40, 20, 24)])
def test_states_and_gradients_are_those_of_torch(batch, width, dim, hidden):
    ours, theirs = both(dim, hidden)
    generator = torch.Generator().manual_seed(0)
    x, h, c = (
        torch.randn(*shape, generator=generator).requires_grad_()
        for shape in ((batch, width, dim), (batch, hidden), (batch, hidden))
    )
    outer = torch.randn(batch, width, hidden, generator=generator)
    found = []
    for states, net in (
        (ours(x, (h, c)), ours),
        (theirs(x, (h.unsqueeze(0), c.unsqueeze(0)))[0], theirs),
    ):
        (states * outer).sum().backward()
        inputs = [one.grad.clone() for one in (x, h, c)]
        found.append([states.detach(), *inputs, *(p.grad for p in net.parameters())])
        x.grad = h.grad = c.grad = None
    for mine, wanted in zip(*found, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


def test_without_a_start_both_begin_at_zero():
    ours, theirs = both(4, 5)
    x = torch.randn(2, 7, 4, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(ours(x), theirs(x)[0])


def test_no_gradient_is_kept_where_none_is_wanted():
    ours, _ = both(4, 5)
    with torch.inference_mode():
        assert not ours(torch.ones(2, 7, 4)).requires_grad


def test_both_directions_give_the_gradients_of_torch_over_padded_texts():
    net = BiLstm(dim=6, hidden=5, rate=0.0)
    initialise(net, torch.Generator().manual_seed(3))
    theirs = {name: nn.LSTM(6, 5, batch_first=True) for name in ("ahead", "back")}
    for name, one in theirs.items():
        one.load_state_dict(getattr(net, name).state_dict())
    lengths = torch.tensor([9, 1, 4])
    x = torch.randn(3, 9, 6, generator=torch.Generator().manual_seed(4))
    states, mask = net(x, lengths, None)
    states.masked_fill(~mask.unsqueeze(2), 0.0).square().sum().backward()
    for text, length, mine in zip(x, lengths, states, strict=True):
        alone = text[None, :length]  # without padding, and turned round for the second
        ahead, back = theirs["ahead"](alone)[0], theirs["back"](alone.flip(1))[0].flip(1)
        wanted = torch.cat([ahead, back], dim=2)
        torch.testing.assert_close(mine[None, :length], wanted)
        wanted.square().sum().backward()
    for name, one in theirs.items():
        for mine, wanted in zip(getattr(net, name).parameters(), one.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, wanted.grad, rtol=1e-5, atol=1e-6)
