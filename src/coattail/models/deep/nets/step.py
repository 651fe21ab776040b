"""What a training step wants of a network."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coattail.models.deep.nets.layers import Mixture
from coattail.models.deep.nets.tail_mix import TailMixer


@dataclass(frozen=True)
class Step:
    """Targets of one batch, weights of the positives, random numbers, and what is mixed."""

    targets: Tensor  # float (B, L)
    weights: Tensor | None  # of positives (L,)
    generator: torch.Generator
    mixture: Mixture | None = None  # of whole texts
    tailmix: TailMixer | None = None  # of labels
