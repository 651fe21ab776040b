"""What the models of the stage ``train_deep`` share: what their params.json says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coattail.config import parse
from coattail.errors import ModelError
from coattail.models.deep.deep_model import DeepModel
from coattail.models.deep.deep_params import DeepParams, NetworkParams
from coattail.models.deep.fit_data import Inputs

FORMAT = 1


class NetworkModel(DeepModel[Inputs]):
    """Base of the models of the stage ``train_deep``.

    Attributes
    ----------
    n_labels_ : labels that it can give.
    """

    n_labels_: int

    def _facts(self) -> dict[str, Any]:
        params = self.params.model_dump(mode="json")
        return {"format": FORMAT, "params": params, "n_labels": self.n_labels_}

    @classmethod
    def _read_facts(cls, folder: Path) -> dict[str, Any]:
        return read_facts(folder)

    @classmethod
    def _parse(cls, params: dict[str, Any], folder: Path) -> NetworkParams:
        return params_of(params, folder)


def read_facts(folder: str | Path) -> dict[str, Any]:
    """What params.json of a saved model says; ModelError for one that this code cannot read."""
    path = Path(folder) / "params.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{folder} is not a deep model: params.json is missing") from None
    if facts.get("format") != FORMAT:
        raise ModelError(f"{path}: format {facts.get('format')!r}, wanted {FORMAT}; train it again")
    return facts


def params_of(params: dict[str, Any], folder: str | Path) -> NetworkParams:
    """The settings among the facts of a saved model."""
    parsed: NetworkParams = parse(params, DeepParams, str(Path(folder) / "params.json"))
    return parsed
