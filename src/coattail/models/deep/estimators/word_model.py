"""Deep models as the pipeline sees them: fit, predict, save, load, explain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from coattail.arrays import Ragged, TopK, as_csr
from coattail.errors import ModelError
from coattail.files import atomic_folder
from coattail.labels.tree import Tree
from coattail.models import begun_with
from coattail.models.deep import batching
from coattail.models.deep.deep_kinds import KINDS
from coattail.models.deep.deep_params import NetworkParams, WordParams
from coattail.models.deep.device import explain_memory, keep_freed_memory, resolve, threads
from coattail.models.deep.nets.attentionxml import AttentionNet
from coattail.models.deep.training.batch_pieces import workers, works_alone
from coattail.models.deep.training.fitting import (
    Judge,
    build_net,
    fit_net,
    rank,
    start_weights,
    validation_sample,
)
from coattail.models.deep.training.loop import Log
from coattail.models.find_kind import named
from coattail.models.fitted import Fitted

FORMAT = 1


class DeepModel(Fitted):
    """A network over the tokens of texts that scores all labels (no tree).

    Attributes
    ----------
    net_ : the trained network; n_labels_, vocabulary_size_, dim_ : its sizes.
    reads : what ``fit`` and ``predict`` take, "tokens" of our vocabulary or "texts".
    """

    reads: ClassVar[str] = "tokens"

    def __init__(self, params: NetworkParams) -> None:
        self.params = params
        self.threads_ = 0  # torch's choice

    def fit(
        self,
        tokens: Ragged,
        Y: sp.csr_matrix,
        *,
        vocabulary_size: int,
        valid: tuple[Ragged, sp.csr_matrix] | None = None,
        vectors: NDArray | None = None,
        trees: Sequence[Tree] | None = None,
        propensity: tuple[float, float] = (0.55, 1.5),
        device: str = "cpu",
        threads: int = 0,
        log: Log | None = None,
        checkpoint: Path | None = None,
    ) -> Self:
        """Train, going on from ``checkpoint`` if it was begun with the same.

        Parameters
        ----------
        tokens, Y : texts as token ids, and their labels (n, L).
        vocabulary_size : words that token ids may name, padding (0) and unknown (1) included.
        valid : tokens and labels that choose the best weights (by nDCG@5) and the early stop.
        vectors : float (vocabulary_size, d), optional
            Pre-trained word vectors.
        trees : not used here; models over a tree take them.
        propensity : the data set's constants A and B, for PW, PW-cb and TailMix.
        device : a name for ``device.resolve``.
        threads : CPU threads, 0 for torch's choice.
        log : called with the numbers of every epoch and its number.
        checkpoint : file; the caller removes it (``deep_models.forget``) once the model is saved.
        """
        Y, valid = check_input(tokens, Y, valid, vocabulary_size, vectors)
        things = named_inputs(tokens, Y, valid, vocabulary_size, vectors, propensity)
        inputs = begun_with.inputs(self.params, things) if checkpoint else None
        self.device_ = resolve(device)
        if self.device_ == "cpu":
            keep_freed_memory()
        with _threads(threads), self._memory():
            self.threads_ = torch.get_num_threads()
            self._start(tokens, Y, vocabulary_size, vectors)
            fit_net(
                self.net_,
                self.params,
                tokens,
                Y,
                self._judge(valid),
                device=self.device_,
                propensity=propensity,
                name=f"train {self.params.model}",
                inputs=inputs,
                log=log,
                checkpoint=checkpoint,
            )
        return self

    def predict(self, tokens: Ragged, k: int) -> TopK:
        """The best k labels of every text with their sigmoid scores."""
        batching.check_tokens(tokens, self.vocabulary_size_, "texts to rank")
        found = np.full((tokens.n, k), -1, np.int32)
        scores = np.full((tokens.n, k), -np.inf, np.float32)
        lengths = batching.used_lengths(tokens, self.params.max_tokens)

        def rank_rows(rows: NDArray[np.int64]) -> None:
            top = self._rank(batching.pad(tokens, rows, self.params.max_tokens, self.device_), k)
            found[rows], scores[rows] = top.labels, top.scores

        alone = works_alone(self.net_, self.device_)
        with self._memory(), workers(self.threads_, alone) as each:
            each(rank_rows, batching.sorted_batches(lengths, self.params.predict_batch))
        return TopK(found, scores, "probability")

    def explain(self, row: NDArray, wanted: list[int] | NDArray) -> NDArray[np.float32]:
        """Attention weights of the words of one text for each wanted label: (labels, words)."""
        if not isinstance(self.net_, AttentionNet):
            raise ModelError(f"{self.params.model} has no attention to explain; use attentionxml")
        columns = np.asarray(wanted, np.int64)
        if len(columns) and (columns.min() < 0 or columns.max() >= self.n_labels_):
            raise ModelError(f"label {columns.max()} was asked for; there are {self.n_labels_}")
        tokens = Ragged(np.array([0, len(row)], np.int64), np.asarray(row, np.int32))
        batching.check_tokens(tokens, self.vocabulary_size_, "text to explain")
        batch = batching.pad(tokens, np.array([0]), self.params.max_tokens, self.device_)
        weights = self.net_.weigh(batch, torch.from_numpy(columns).to(self.device_))
        return weights[0, :, : int(batch.lengths[0])].cpu().numpy()

    def save(self, folder: str | Path) -> None:
        """Write params.json and weights.safetensors; the device is not part of a model."""
        facts = {
            "format": FORMAT,
            "params": self.params.model_dump(mode="json"),
            "n_labels": self.n_labels_,
            "vocabulary_size": self.vocabulary_size_,
            "dim": self.dim_,
        }
        tensors = {name: t.detach().cpu() for name, t in self.net_.state_dict().items()}
        with atomic_folder(folder) as temporary:
            (temporary / "params.json").write_text(json.dumps(facts, indent=1) + "\n")
            save_file(tensors, temporary / "weights.safetensors")

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Self:
        facts = read_facts(folder)
        model = cls(params_of(facts))
        model.device_ = resolve(device)
        model._build(facts["n_labels"], facts["vocabulary_size"], facts["dim"])
        load_weights(model.net_, Path(folder) / "weights.safetensors")
        model.net_.to(model.device_).eval()
        return model

    # --- inside

    def _build(self, n_labels: int, vocabulary_size: int, dim: int) -> None:
        self.n_labels_, self.vocabulary_size_, self.dim_ = n_labels, vocabulary_size, dim
        self.net_ = build_net(self.params, n_labels, vocabulary_size, dim)

    def _start(
        self, tokens: Ragged, Y: sp.csr_matrix, vocabulary_size: int, vectors: NDArray | None
    ) -> None:
        assert isinstance(self.params, WordParams)  # others are TextModel's
        dim = self.params.embedding_dim if vectors is None else vectors.shape[1]
        self._build(Y.shape[1], vocabulary_size, dim)
        start_weights(self.net_, self.params, tokens, Y, vectors)
        self.net_.to(self.device_)

    def _judge(self, valid: tuple[Ragged, sp.csr_matrix] | None) -> Judge | None:
        """Ranks a random sample of the validation texts."""
        if valid is None:
            return None
        tokens, Y = validation_sample(*valid, self.params)
        return lambda: (self.predict(tokens, 5), Y)

    def _rank(self, batch: batching.Batch, k: int) -> TopK:
        with torch.inference_mode():
            columns, logits = self.net_.score(batch, k)
        return rank(columns, logits, k)

    def _memory(self) -> Any:
        return memory_advice(self.params, self.device_)


def memory_advice(params: NetworkParams, device: str) -> Any:
    """What to lower when memory runs out."""
    return explain_memory(
        device, label_block=params.label_block, batch=params.batch, max_tokens=params.max_tokens
    )


def check_input(
    tokens: Ragged,
    Y: sp.csr_matrix,
    valid: tuple[Ragged, sp.csr_matrix] | None,
    vocabulary_size: int,
    vectors: NDArray | None,
) -> tuple[sp.csr_matrix, tuple[Ragged, sp.csr_matrix] | None]:
    """Canonical labels of training and validation, or an error that says what does not fit."""
    Y = as_csr(Y, "Y")
    batching.check_labels(tokens, Y, "training texts")
    batching.check_tokens(tokens, vocabulary_size, "training texts")
    if valid is not None:
        valid = (valid[0], as_csr(valid[1], "Y of validation"))
        batching.check_labels(*valid, "validation texts")
        batching.check_tokens(valid[0], vocabulary_size, "validation texts")
    if vectors is not None:
        batching.check_vectors(vectors, vocabulary_size)
    return Y, valid


def named_inputs(
    tokens: Ragged,
    Y: sp.csr_matrix,
    valid: tuple[Ragged, sp.csr_matrix] | None,
    vocabulary_size: int,
    vectors: NDArray | None,
    propensity: tuple[float, float],
) -> dict[str, Any]:
    """What a training over tokens depends on besides its params, by the names that errors use."""
    validation_tokens, validation_labels = valid or (None, None)
    return {
        "tokens": tokens,
        "labels": Y,
        "validation tokens": validation_tokens,
        "validation labels": validation_labels,
        "size of the vocabulary": vocabulary_size,
        "word vectors": vectors,
        "propensity": propensity,
    }


def read_facts(folder: str | Path) -> dict[str, Any]:
    path = Path(folder) / "params.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise ModelError(f"{folder} is not a deep model: params.json is missing") from None
    if facts.get("format") != FORMAT:
        raise ModelError(f"{path}: format {facts.get('format')!r}, wanted {FORMAT}; train it again")
    return facts


def params_of(facts: dict[str, Any]) -> Any:
    kind = named(facts["params"]["model"], KINDS, "train_deep")
    return kind.get("params").model_validate(facts["params"])


def load_weights(net: nn.Module, path: Path) -> None:
    try:
        net.load_state_dict(load_file(path))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing; train the model again") from None
    except (SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path} does not fit its params.json: {reason}") from None


_threads = threads
