"""Operations of torch that numpy takes over, and that no network uses others of MKL or oneDNN."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from coattail.config import parse
from coattail.models.deep import deep_models, same_bits
from coattail.models.deep.deep_params import DeepParams
from coattail.models.deep.nets.layers import Convolution
from coattail.models.deep.transfer import transfer_models
from coattail.models.deep.transfer.transfer_params import TransferParams
from coattail.processor import HELD, SETTINGS
from coattail.testing.model_contract import separable
from tests.models.deep import test_contract, test_transfer_contract

ROOT = Path(__file__).resolve().parents[3]


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) + 0.1


def turned(x: torch.Tensor) -> torch.Tensor:
    """The same numbers, with columns instead of rows side by side in memory."""
    return x.transpose(-1, -2).contiguous().transpose(-1, -2)


A, B = numbers(5, 7), numbers(7, 3, seed=1)
PAIRS = {
    "plain": (A, B),
    "turned": (turned(A), turned(B)),
    "a column alone": (A, B[:, :1]),
    "every second column": (numbers(5, 14)[:, ::2], B),
    "one row many times": (numbers(1, 7).expand(5, 7), B),
    "no rows": (A[:0], B),
    "nothing to add up": (A[:, :0], B[:0]),
    "double": (A.double(), B.double()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_products_are_those_of_torch_however_the_numbers_lie(name):
    a, b = PAIRS[name]
    torch.testing.assert_close(same_bits.REPLACED["mm"](a, b), a @ b)
    stacks = a.expand(4, *a.shape), b.expand(4, *b.shape)
    torch.testing.assert_close(same_bits.REPLACED["bmm"](*stacks), torch.bmm(*stacks))


@pytest.mark.parametrize("beta", [1, 0, 0.5])
@pytest.mark.parametrize("alpha", [1, 2.5])
@pytest.mark.parametrize("added", [numbers(3), numbers(5, 3), numbers(5, 1)])
def test_sums_with_products_are_those_of_torch(added, alpha, beta):
    wanted = torch.addmm(added, A, B, beta=beta, alpha=alpha)
    found = same_bits.REPLACED["addmm"](added, A, B, beta=beta, alpha=alpha)
    torch.testing.assert_close(found, wanted)
    out = torch.empty(0)
    same_bits.REPLACED["addmm.out"](added, A, B, beta=beta, alpha=alpha, out=out)
    torch.testing.assert_close(out, wanted)


@pytest.mark.parametrize("name", ["sqrt", "exp", "log"])
def test_functions_of_numbers_are_those_of_torch(name):
    for x in (A, turned(A), A[0, 0], A.double(), A[:0], torch.arange(1, 4)):
        torch.testing.assert_close(same_bits.REPLACED[name](x), getattr(torch, name)(x))
    x = A.clone()
    assert same_bits.REPLACED[f"{name}_"](x) is x
    torch.testing.assert_close(x, getattr(torch, name)(A))


def test_convolutions_and_their_gradients_are_those_of_torch():
    ours, theirs = Convolution(6, 4, 3), torch.nn.Conv1d(6, 4, 3)
    theirs.load_state_dict(ours.state_dict())
    x = (numbers(2, 9, 6) - 0.5).requires_grad_()
    found = []
    for y in (ours(x), theirs(x.transpose(1, 2)).transpose(1, 2)):
        y.pow(2).sum().backward()
        found.append([y, x.grad.clone()])
        x.grad = None
    for mine, wanted in zip(
        [*found[0], *(p.grad for p in ours.parameters())],
        [*found[1], *(p.grad for p in theirs.parameters())],
        strict=True,
    ):
        torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-5)


PROGRAM = """
from coattail import processor
processor.settle("any")
import numpy, torch
from coattail.models.deep import device
device.resolve("cpu")
x = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()
layer = torch.nn.Linear(4, 2)
with torch.no_grad():
    layer.weight.copy_(torch.linspace(0, 1, 8).view(2, 4)); layer.bias.fill_(0.5)
layer(x).exp().sum().backward()
print(layer.weight.grad.flatten().tolist(), x.grad.shape == x.shape)
print(torch.backends.cpu.get_cpu_capability(), len(device.same_bits._registered))
with torch.inference_mode():
    q = torch.ones(1, 2, 3, 4)
    print(float(torch.nn.functional.scaled_dot_product_attention(q, q, q).sum()))
"""


def test_replaced_operations_have_gradients_and_settings_reach_torch():
    environment = {k: v for k, v in os.environ.items() if k not in {HELD, *SETTINGS}}
    environment["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    gradient, settings, attention = done.stdout.splitlines()
    x, w = np.linspace(-1, 1, 12).reshape(3, 4), np.linspace(0, 1, 8).reshape(2, 4)
    wanted = np.exp(x @ w.T + 0.5).T @ x
    assert gradient.endswith("True")
    found = [float(one) for one in re.findall(r"-?[\d.]+(?:e-?\d+)?", gradient)]
    np.testing.assert_allclose(found, wanted.ravel(), rtol=1e-5)
    assert settings in ("AVX2 1", "DEFAULT 0", "NO AVX 0")
    assert float(attention) == 24


# --- what networks use ---------------------------------------------------------------------------

ELSEWHERE = re.compile(
    r"mkldnn|convolution|lstm|flash|fused|linalg_(?!vector_norm)|fft|"
    r"^(a?sinh?|a?cosh?|a?tan|erf\w*|exp2|log2|log10|lgamma|digamma|cholesky|svd|qr)(\.|_|$)"
)
"""What MKL or oneDNN compute, each processor in its own way, and nobody has replaced."""


class Used(TorchDispatchMode):
    """Names of all operations, those of gradients included."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        root = name.startswith("pow") and len(args) > 1 and args[1] == 0.5
        self.names.add("pow of a half, which MKL computes: linalg_" if root else name)
        return func(*args, **(kwargs or {}))


X, Y = separable(n=48)
DEEP = [
    {"model": "attentionxml", "hidden": 4, "fc": [4], "candidates": 0, "label_outputs": True},
    {"model": "attentionxml", "hidden": 4, "fc": [4], "candidates": 3, "mix": "tailmix"},
    {"model": "attentionxml", "hidden": 4, "fc": [4], "candidates": 0, "mix": "ssmix"},
    {"model": "xmlcnn", "filters": 4, "weighting": "pwcb"},
    {"model": "bilstm", "hidden": 4, "fc": [4], "mix": "hiddenmix"},
]
TRANSFER = ["httn", "bbn", "oltr", "ltmcp", "dxml"]


def used_by_training(model: Any, contract: Any) -> set[str]:
    with Used() as used:
        contract.fit(model, X, Y)
        model.predict(contract.inputs(X), 3)
    return used.names


@pytest.mark.parametrize("settings", DEEP, ids=lambda one: f"{one['model']}-{one.get('mix')}")
def test_no_network_uses_what_differs_between_processors(settings):
    small = {**test_contract.SMALL, "epochs": 1, "swa_from": 0, "evaluate_every": 0}
    model = deep_models.build(parse({**small, **settings}, DeepParams, "test"))
    contract = test_contract.DeepContract()
    contract.settings = settings
    names = used_by_training(model, contract)
    assert "mm.default" in names
    assert not [name for name in names if ELSEWHERE.search(name)]


@pytest.mark.parametrize("name", TRANSFER)
def test_no_encoder_of_the_transfer_models_does_either(name):
    small = {**test_transfer_contract.SMALL, "epochs": 1}
    small |= {"head_count": 3} if name in ("httn", "ltmcp") else {}
    model = transfer_models.build(parse({**small, "model": name}, TransferParams, "test"))
    contract = test_transfer_contract.TransferContract()
    contract.settings = {"model": name}
    names = used_by_training(model, contract)
    assert "mm.default" in names
    assert not [name for name in names if ELSEWHERE.search(name)]
