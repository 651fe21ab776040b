"""Models of the stage `transfer`: untrained ones from settings, trained ones from a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coattail.arrays import Ragged
from coattail.models import find_kind
from coattail.models.deep.transfer.transfer_kinds import KINDS


def build(params: Any) -> Any:
    """The untrained model of ``params``."""
    return find_kind.named(params.model, KINDS, "transfer").build(params)


def load(folder: str | Path, device: str = "cpu") -> Any:
    """A saved model, on ``device`` (whatever it was trained on)."""
    return find_kind.load(folder, KINDS, "transfer", device)


def add_label(model: Any, name: str, new: Ragged, training: Callable[[], Any]) -> None:
    """One more label by transfer; the training texts are not needed."""
    model.add_label(name, new)
