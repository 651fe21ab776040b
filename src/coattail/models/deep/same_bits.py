"""Products, exp, log and roots of torch on a CPU by numpy instead of MKL.

MKL takes other ways on another maker's processor, and no fast setting of it gives the same bytes on
both. numpy and its OpenBLAS, told which processor to think of (``coattail.processor``), run the
same instructions in the same order on all of them. Gradients come here too: torch computes them by
the same operations.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coattail import processor

_registered: list[torch.library.Library] = []  # ours as long as this is there


def settle() -> None:
    """Replace the operations in this process, if it is to compute the bytes of every processor."""
    if processor.held() and not _registered:
        replace()


def replace() -> None:
    """From now on, in all of this process; on other devices nothing changes."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():  # torch says that kernels of its own are replaced
        warnings.simplefilter("ignore", UserWarning)
        for name, function in REPLACED.items():
            library.impl(name, function, "CPU")
    _registered.append(library)
    # oneDNN asks the processor and its caches; what still went there (gelu) torch then does itself.
    torch.backends.mkldnn.enabled = False
    # Its attention multiplies inside one operation; without it torch takes products and softmax.
    # (GPUs have other fast ones.)
    torch.backends.cuda.enable_flash_sdp(False)


# --- products


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b for vectors, matrices, and stacks of as many matrices."""
    out = a.new_empty([*a.shape[:-1], *(b.shape[-1:] if b.dim() > 1 else [])])
    np.matmul(_array(a), _array(b), out=out.numpy())
    return out


def _array(x: Tensor) -> NDArray:
    """The same memory; rows and columns strewn about are put together first, as BLAS wants it."""
    x = x.detach()
    if x.dim() > 1 and not _in_line(x):
        x = x.contiguous()
    return x.numpy()


def _in_line(x: Tensor) -> bool:
    """Whether the rows of every matrix, or its columns, lie without gaps inside them."""
    (rows, columns), (down, along) = x.shape[-2:], x.stride()[-2:]
    return (along == 1 and down >= columns) or (down == 1 and along >= rows)


def _plus(added: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    out = product(a, b)
    if alpha != 1:
        out.mul_(alpha)
    return out.add_(added, alpha=beta) if beta else out


def _plus_in_place(
    added: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    return added.copy_(_plus(added, a, b, beta=beta, alpha=alpha))


# --- functions of single numbers


def _each(function: np.ufunc) -> dict[str, Callable[..., Tensor]]:
    """The three forms that torch has of such a function."""
    name = function.__name__

    def new(x: Tensor) -> Tensor:
        x = x.detach() if x.is_floating_point() else x.float()
        return torch.from_numpy(np.asarray(function(x.numpy())))

    def in_place(x: Tensor) -> Tensor:
        return x.copy_(new(x))

    return {name: new, f"{name}_": in_place, f"{name}.out": _into(new)}


def _into(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The form that writes into a given tensor."""

    def write(*arguments: Tensor, out: Tensor, **more: float) -> Tensor:
        found = function(*arguments, **more)
        return out.resize_(found.shape).copy_(found)

    return write


REPLACED: dict[str, Callable[..., Tensor]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot"), product),
    **dict.fromkeys(("mm.out", "bmm.out"), _into(product)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _plus),
    **dict.fromkeys(("addmm.out", "baddbmm.out", "addmv.out"), _into(_plus)),
    **dict.fromkeys(("addmm_", "baddbmm_", "addmv_"), _plus_in_place),
    **_each(np.sqrt),
    **_each(np.exp),
    **_each(np.log),
}
"""Operations of torch by name; vdot is dot as long as numbers are real."""
