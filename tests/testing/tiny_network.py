"""A plugin's network as its author writes it: kind, settings and model, over token ids or texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from safetensors.torch import save_file

from coattail.arrays import Ragged, TopK, best_first
from coattail.models.deep import batching
from coattail.models.deep.deep_model import DeepModel, load_weights, weights_of
from coattail.models.deep.deep_params import NetworkParams
from coattail.models.deep.fit_data import FitData, RunContext, checked_tokens
from coattail.models.kinds import ModelKind

KIND = ModelKind(
    name="wordsums",
    stage="train_deep",
    reads="tokens",
    params="tests.testing.tiny_network:WordsumsParams",
    model="tests.testing.tiny_network:Wordsums",
    explain="tests.testing.tiny_network:explain",
)


class WordsumsParams(NetworkParams):
    """A score per word and label, summed over the words of a text."""

    model: Literal["wordsums"] = Field("wordsums", description="scores of words, summed")


class Wordsums(DeepModel[Ragged]):
    def _checked(self, data: FitData[Ragged]) -> FitData[Ragged]:
        return checked_tokens(data)

    def _learn(self, data: FitData[Ragged], context: RunContext) -> None:
        self._build(data.vocabulary_size, data.Y.shape[1])
        weights = list(self.net_.parameters())
        adam = torch.optim.Adam(weights, lr=self.params.lr)
        truth = torch.from_numpy(data.Y.toarray())
        for epoch in range(self.params.epochs):
            adam.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                self._logits(data.inputs), truth
            )
            loss.backward()
            adam.step()
            if context.log is not None:
                context.log({"loss": float(loss.detach())}, epoch)

    def _build(self, words: int, labels: int) -> None:
        self.net_ = torch.nn.EmbeddingBag(words, labels, mode="sum")
        torch.nn.init.zeros_(self.net_.weight)

    def _logits(self, tokens: Ragged) -> torch.Tensor:
        ids = torch.from_numpy(np.asarray(tokens.values, np.int64))
        return self.net_(ids, torch.from_numpy(tokens.indptr[:-1].astype(np.int64)))

    def _ranked(self, inputs: Ragged, k: int) -> TopK:
        batching.check_tokens(inputs, len(self.net_.weight), "texts to rank")
        with torch.inference_mode():
            scores = torch.sigmoid(self._logits(inputs)).numpy()
        labels = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
        return best_first(labels, scores, k)

    def _facts(self) -> dict[str, Any]:
        words, labels = self.net_.weight.shape
        return {"params": self.params.model_dump(mode="json"), "words": words, "labels": labels}

    def _write(self, folder: Path) -> None:
        save_file(weights_of(self.net_), folder / "weights.safetensors")

    def _read(self, facts: dict[str, Any], folder: Path) -> None:
        self._build(facts["words"], facts["labels"])
        load_weights(self.net_, folder / "weights.safetensors")


def explain(
    model: Wordsums, ids: np.ndarray, labels: list[int], n: int
) -> list[list[tuple[int, float]]]:
    """The words of a text that add most to the score of each label."""
    found = []
    for label in labels:
        weights = {int(word): model.net_.weight[word, label].item() for word in ids}
        found.append(sorted(weights.items(), key=lambda pair: -pair[1])[:n])
    return found
