"""Base of all networks: fit, predict, save and load are the same for each of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from coattail.arrays import TopK
from coattail.config import parse
from coattail.errors import ModelError
from coattail.files import atomic_folder
from coattail.models import find_kind
from coattail.models.deep import device as devices
from coattail.models.deep.deep_kinds import KINDS
from coattail.models.deep.fit_data import FitData, Inputs, RunContext
from coattail.models.deep.training.batch_pieces import Each, workers, works_alone
from coattail.models.fitted import Fitted
from coattail.models.kinds import ModelKind


class DeepModel(Fitted, Generic[Inputs]):
    """A network that learns from texts and ranks labels.

    A subclass checks its data (``_checked``), trains (``_learn``), ranks (``_ranked``), and writes
    and reads its files (``_facts``, ``_write``, ``_read``).

    Attributes
    ----------
    reads : what ``fit`` and ``predict`` take, "tokens" of our vocabulary or "texts".
    stage, kinds : the stage that trains it, and that stage's kinds of models without plugins.
    """

    reads: ClassVar[str] = "tokens"
    stage: ClassVar[str] = "train_deep"
    kinds: ClassVar[Sequence[ModelKind]] = KINDS

    def __init__(self, params: Any) -> None:
        self.params = params
        self.device_ = "cpu"
        self.threads_ = 0  # torch's choice

    def fit(self, data: FitData[Inputs], context: RunContext | None = None) -> Self:
        """Train, going on from the context's checkpoint if it was begun with the same."""
        context = context or RunContext()
        data = self._checked(data)
        self.device_ = devices.resolve(context.device)
        if self.device_ == "cpu":
            devices.keep_freed_memory()
        with devices.threads(context.threads), self._memory():
            self.threads_ = torch.get_num_threads()
            self._learn(data, replace(context, device=self.device_))
        return self

    def predict(self, inputs: Inputs, k: int) -> TopK:
        """The best k labels of every text with their probabilities."""
        with self._memory():
            return self._ranked(inputs, k)

    def save(self, folder: str | Path) -> None:
        """Write params.json and the weights; the device is not part of a model."""
        with atomic_folder(folder) as temporary:
            text = json.dumps(self._facts(), indent=1)
            (temporary / "params.json").write_text(text + "\n", encoding="utf-8")
            self._write(temporary)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Self:
        """A saved model, on ``device`` (whatever it was trained on)."""
        folder = Path(folder)
        facts = cls._read_facts(folder)
        kind = find_kind.named(find_kind.name_in(folder), cls.kinds, cls.stage)
        model = cls(parse(facts["params"], kind.get("params"), str(folder / "params.json")))
        model.device_ = devices.resolve(device)
        model._read(facts, folder)
        return model

    # --- for subclasses to fill in

    def _checked(self, data: FitData[Inputs]) -> FitData[Inputs]:
        return data.checked()

    def _learn(self, data: FitData[Inputs], context: RunContext) -> None:
        raise NotImplementedError

    def _ranked(self, inputs: Inputs, k: int) -> TopK:
        raise NotImplementedError

    def _facts(self) -> dict[str, Any]:
        """What params.json says; ``params`` is always among it."""
        raise NotImplementedError

    @classmethod
    def _read_facts(cls, folder: Path) -> dict[str, Any]:
        """What params.json says; ModelError for one that holds no settings."""
        path = folder / "params.json"
        try:
            facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            facts["params"]
        except FileNotFoundError:
            raise ModelError(f"{path} is missing; {folder} is no model of {cls.stage}") from None
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{path} does not describe a model of {cls.stage}: {error}") from None
        return facts

    def _write(self, folder: Path) -> None:
        """Files beside params.json."""
        raise NotImplementedError

    def _read(self, facts: dict[str, Any], folder: Path) -> None:
        """What ``_write`` wrote."""
        raise NotImplementedError

    # --- shared tools

    def _memory(self) -> AbstractContextManager[None]:
        """Says which params to lower when memory runs out."""
        names = ("label_block", "batch", "max_tokens")
        lower = {name: getattr(self.params, name) for name in names if hasattr(self.params, name)}
        return devices.explain_memory(self.device_, **lower)

    def _workers(self, net: nn.Module) -> AbstractContextManager[Each]:
        """A map over batches for this net, on the threads of this model."""
        return workers(self.threads_, works_alone(net, self.device_))


def wanted_labels(wanted: list[int] | NDArray, n_labels: int) -> Tensor:
    """Label ids to explain, int64; ModelError for one that the model does not know."""
    columns = np.asarray(wanted, np.int64)
    if len(columns) and (columns.min() < 0 or columns.max() >= n_labels):
        raise ModelError(f"label {columns.max()} was asked for; there are {n_labels}")
    return torch.from_numpy(columns)


def weights_of(net: nn.Module) -> dict[str, Tensor]:
    """A net's weights and buffers as files keep them."""
    return {name: t.detach().cpu() for name, t in net.state_dict().items()}


def load_weights(net: nn.Module, path: Path) -> None:
    """Fill a net from a file; ModelError if it is missing or of another net."""
    try:
        net.load_state_dict(load_file(path))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing; train the model again") from None
    except (SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path} does not fit its params.json: {reason}") from None
