"""What the models of the stage ``train_deep`` share: what their params.json says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coattail.errors import ModelError
from coattail.models.deep.deep_model import DeepModel
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
        facts = super()._read_facts(folder)
        if facts.get("format") != FORMAT:
            raise ModelError(
                f"{folder / 'params.json'}: format {facts.get('format')!r}, wanted {FORMAT}; "
                "train it again"
            )
        return facts
