"""Networks over the words of our vocabulary that score all labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from coattail.arrays import Ragged, TopK
from coattail.errors import ModelError
from coattail.models.deep import batching
from coattail.models.deep.deep_model import load_weights, wanted_labels, weights_of
from coattail.models.deep.deep_params import WordParams
from coattail.models.deep.estimators.network_model import NetworkModel
from coattail.models.deep.fit_data import FitData, RunContext, checked_tokens
from coattail.models.deep.nets.attentionxml import AttentionNet
from coattail.models.deep.training.checkpoint import Checkpoint
from coattail.models.deep.training.fitting import (
    Judge,
    Lesson,
    build_net,
    course_of,
    start_weights,
    validation_sample,
)
from coattail.models.deep.training.loop import Run
from coattail.models.deep.training.ranking import rank, rank_all


class TokenModel(NetworkModel[Ragged]):
    """Base of the networks over token ids.

    Attributes
    ----------
    vocabulary_size_, dim_ : number of words, and the size of their vectors.
    """

    def _checked(self, data: FitData[Ragged]) -> FitData[Ragged]:
        return checked_tokens(data)

    def _take_sizes(self, data: FitData[Ragged], params: WordParams) -> None:
        vectors = data.vectors
        self.n_labels_, self.vocabulary_size_ = data.Y.shape[1], data.vocabulary_size
        self.dim_ = params.embedding_dim if vectors is None else vectors.shape[1]

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {"vocabulary_size": self.vocabulary_size_, "dim": self.dim_}

    def _read_sizes(self, facts: dict[str, Any]) -> None:
        self.n_labels_, self.dim_ = facts["n_labels"], facts["dim"]
        self.vocabulary_size_ = facts["vocabulary_size"]

    def _weigh(self, net: AttentionNet, row: NDArray, columns: torch.Tensor) -> NDArray[np.float32]:
        """Attention of a net's labels on the words of one text: (labels, words)."""
        tokens = Ragged(np.array([0, len(row)], np.int64), np.asarray(row, np.int32))
        batching.check_tokens(tokens, self.vocabulary_size_, "text to explain")
        batch = batching.pad(tokens, np.array([0]), self.params.max_tokens, self.device_)
        weights = net.weigh(batch, columns.to(self.device_))
        return weights[0, :, : int(batch.lengths[0])].cpu().numpy()


class WordModel(TokenModel):
    """A network over token ids that scores all labels (no tree).

    Attributes
    ----------
    net_ : the trained network.
    """

    params: WordParams

    def explain(self, row: NDArray, wanted: list[int] | NDArray) -> NDArray[np.float32]:
        """Attention weights of the words of one text for each wanted label: (labels, words)."""
        if not isinstance(self.net_, AttentionNet):
            raise ModelError(f"{self.params.model} has no attention to explain; use attentionxml")
        return self._weigh(self.net_, row, wanted_labels(wanted, self.n_labels_))

    def _learn(self, data: FitData[Ragged], context: RunContext) -> None:
        checkpoint = Checkpoint.of(context.checkpoint, self.params, data.named())
        self._take_sizes(data, self.params)
        self._build()
        start_weights(self.net_, self.params, data.inputs, data.Y, data.vectors)
        self.net_.to(self.device_)
        lesson = Lesson(
            f"train {self.params.model}",
            self.net_,
            self.params,
            data.inputs,
            data.Y,
            data.propensity,
            self._judge(data.valid),
        )
        Run(context, checkpoint).train(course_of(lesson, self.device_))
        self.net_.eval()

    def _build(self) -> None:
        sizes = (self.n_labels_, self.vocabulary_size_, self.dim_)
        self.net_ = build_net(self.params, *sizes)

    def _judge(self, valid: tuple[Ragged, sp.csr_matrix] | None) -> Judge | None:
        """Ranks a random sample of the validation texts."""
        if valid is None:
            return None
        tokens, Y = validation_sample(*valid, self.params)
        return lambda: (self.predict(tokens, 5), Y)

    def _ranked(self, inputs: Ragged, k: int) -> TopK:
        batching.check_tokens(inputs, self.vocabulary_size_, "texts to rank")
        lengths = batching.used_lengths(inputs, self.params.max_tokens)

        def rank_rows(rows: NDArray[np.int64]) -> TopK:
            batch = batching.pad(inputs, rows, self.params.max_tokens, self.device_)
            with torch.inference_mode():
                columns, logits = self.net_.score(batch, k)
            return rank(columns, logits, k)

        batches = batching.sorted_batches(lengths, self.params.predict_batch)
        with self._workers(self.net_) as each:
            return rank_all(inputs.n, k, batches, rank_rows, each)

    def _write(self, folder: Path) -> None:
        save_file(weights_of(self.net_), folder / "weights.safetensors")

    def _read(self, facts: dict[str, Any], folder: Path) -> None:
        self._read_sizes(facts)
        self._build()
        load_weights(self.net_, folder / "weights.safetensors")
        self.net_.to(self.device_).eval()
