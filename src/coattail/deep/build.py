"""From settings to an untrained model, and from a folder to a trained one."""

from __future__ import annotations

from pathlib import Path

from coattail.deep.model import DeepModel, params_of, read_facts
from coattail.deep.train import AnyParams


def build(params: AnyParams) -> DeepModel:
    """The untrained model of ``params``."""
    return DeepModel(params)


def load(folder: str | Path, device: str = "cpu") -> DeepModel:
    """A saved model, on ``device`` (whatever it was trained on)."""
    return type(build(params_of(read_facts(folder)))).load(folder, device)
