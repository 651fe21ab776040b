"""Files that an interrupted training goes on from, and what they were begun with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from coattail.files import atomic_file
from coattail.models import begun_with
from coattail.models.deep.training import processes


@dataclass(frozen=True)
class Checkpoint:
    """One file of tensors and facts, which is only read again for the same training."""

    path: Path | None  # None: nothing is kept
    begun_with: begun_with.Inputs

    @classmethod
    def of(cls, path: Path | None, params: Any, things: dict[str, Any]) -> Checkpoint:
        """The checkpoint of a training with these params over these things (by name)."""
        return cls(path, begun_with.inputs(params, things) if path else {})

    def part(self, name: str, **more: Any) -> Checkpoint:
        """The checkpoint of one part of the training, which depends on ``more`` things."""
        if self.path is None:
            return self
        path = self.path.with_name(f"{self.path.stem}.{name}{self.path.suffix}")
        digests = {key: begun_with.digest(thing) for key, thing in more.items()}
        return Checkpoint(path, self.begun_with | digests)

    def write(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Replace the file; of several processes, the leader writes."""
        if self.path is None or not processes.leads():
            return
        metadata = {"begun_with": json.dumps(self.begun_with), "facts": json.dumps(facts)}
        with atomic_file(self.path) as temporary:
            save_file(tensors, temporary, metadata=metadata)

    def read(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What was written; None, and a warning with the reason, if it is of no use."""
        if self.path is None or not self.path.exists():
            return None
        before: begun_with.Inputs = {}
        try:
            with safe_open(self.path, framework="pt") as file:
                metadata = file.metadata() or {}
                before, facts = (json.loads(metadata[key]) for key in ("begun_with", "facts"))
                if before == self.begun_with:
                    return {key: file.get_tensor(key) for key in file.keys()}, facts  # noqa: SIM118
        except (SafetensorError, KeyError, ValueError):
            before = {}
        begun_with.starts_anew(name, self.path, before, self.begun_with)
        return None

    def arrays(self, name: str, compute: Callable[[], dict[str, NDArray]]) -> dict[str, NDArray]:
        """The arrays of ``compute``, or those that an interrupted run has kept as part ``name``."""
        kept = self.part(name)
        found = kept.read(name)
        if found is not None:
            return {key: tensor.numpy() for key, tensor in found[0].items()}
        arrays = compute()
        tensors = {key: torch.from_numpy(np.ascontiguousarray(a)) for key, a in arrays.items()}
        kept.write(tensors, {})
        return arrays


def forget(path: Path) -> None:
    """Remove a checkpoint and those of its parts."""
    # A variant's name holds no dot, so no other training's file begins like this.
    prefix = f"{path.stem}."
    for place in path.parent.iterdir() if path.parent.exists() else ():
        if place.name.startswith(prefix):
            shutil.rmtree(place) if place.is_dir() else place.unlink()
