"""Models over a pre-trained encoder as the pipeline sees them: texts in, rankings out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from coattail.arrays import Ragged, TopK, as_csr
from coattail.errors import ModelError
from coattail.files import atomic_folder
from coattail.labels.tree import Tree
from coattail.models import begun_with
from coattail.models.deep import batching
from coattail.models.deep.deep_params import AplcParams, LarobertaParams
from coattail.models.deep.device import keep_freed_memory, resolve
from coattail.models.deep.device import threads as use_threads
from coattail.models.deep.estimators.word_model import (
    FORMAT,
    load_weights,
    memory_advice,
    params_of,
    read_facts,
)
from coattail.models.deep.nets import pretrained
from coattail.models.deep.nets.aplc import AplcNet
from coattail.models.deep.nets.layers import initialise
from coattail.models.deep.nets.pretrained import Pretrained
from coattail.models.deep.nets.transformer import LarobertaNet
from coattail.models.deep.training.batch_pieces import workers, works_alone
from coattail.models.deep.training.fitting import (
    Judge,
    fit_net,
    rank,
    start_outputs,
    validation_sample,
)
from coattail.models.deep.training.frozen_states import WordPieces, keep_states
from coattail.models.deep.training.loop import Log
from coattail.models.fitted import Fitted

CACHEABLE = ("none", "tailmix", "hiddenmix")
"""Mixtures that leave the encoder's states as they are; the others run inside it."""


class TextModel(Fitted):
    """LaRoBERTa or APLC over a pre-trained encoder, which reads texts with its own words.

    Attributes
    ----------
    net_ : the trained network; encoder_ : its encoder and tokenizer; n_labels_ : labels.
    """

    reads: ClassVar[str] = "texts"

    def __init__(self, params: LarobertaParams | AplcParams) -> None:
        self.params = params
        self.threads_ = 0  # torch's choice

    def fit(
        self,
        texts: Sequence[str],
        Y: sp.csr_matrix,
        *,
        valid: tuple[Sequence[str], sp.csr_matrix] | None = None,
        vocabulary_size: int | None = None,
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
        texts, Y : texts and their labels (n, L).
        valid : texts and labels that choose the best weights (by nDCG@5) and the early stop.
        vocabulary_size, vectors, trees : not used here; models over tokens take them.
        propensity, device, threads, log, checkpoint : as in ``DeepModel.fit``.
        """
        Y = as_csr(Y, "Y")
        self.device_ = resolve(device)
        if self.device_ == "cpu":
            keep_freed_memory()
        with use_threads(threads), self._memory():
            self.threads_ = torch.get_num_threads()
            found = pretrained.load(self.params.encoder)
            tokens = found.pieces(texts, self.params.max_tokens)
            batching.check_labels(tokens, Y, "training texts")
            identity = found.identity()
            self._build(Y.shape[1], found)
            initialise(self.net_, torch.Generator().manual_seed(self.params.seed))
            start_outputs(self.net_, tokens, Y, found.vocabulary_size)
            self.net_.to(self.device_)
            kept, inputs = None, None
            if checkpoint is not None:
                kept = (checkpoint.parent / "states", identity)
                validation_texts, validation_labels = valid or (None, None)
                things = {
                    "texts": tokens,
                    "labels": Y,
                    "validation texts": validation_texts,
                    "validation labels": validation_labels,
                    "encoder": identity,
                    "propensity": propensity,
                }
                inputs = begun_with.inputs(self.params, things)
            pieces = self._prepare(tokens, kept, self.params.mix in CACHEABLE, "encode train")
            fit_net(
                self.net_,
                self.params,
                tokens,
                Y,
                self._judge(valid, kept),
                device=self.device_,
                propensity=propensity,
                name=f"train {self.params.model}",
                inputs=inputs,
                batches=pieces.batch,
                log=log,
                checkpoint=checkpoint,
            )
        return self

    def predict(self, texts: Sequence[str], k: int) -> TopK:
        """The best k labels of every text with their probabilities."""
        with self._memory():
            return self._rank(WordPieces(self.encoder_.pieces(texts, self.params.max_tokens)), k)

    def explain(self, text: str, wanted: list[int] | NDArray) -> NDArray[np.float32]:
        """Attention on the word pieces of one text for each wanted label: (labels, pieces).

        ``pieces`` gives the word pieces themselves.
        """
        if not isinstance(self.net_, LarobertaNet):
            raise ModelError(f"{self.params.model} has no attention to explain; use laroberta")
        columns = np.asarray(wanted, np.int64)
        if len(columns) and (columns.min() < 0 or columns.max() >= self.n_labels_):
            raise ModelError(f"label {columns.max()} was asked for; there are {self.n_labels_}")
        tokens = self.encoder_.pieces([text], self.params.max_tokens)
        batch = WordPieces(tokens).batch(np.array([0]), self.device_)
        weights = self.net_.weigh(batch, torch.from_numpy(columns).to(self.device_))
        return weights[0, :, : int(batch.lengths[0])].cpu().numpy()

    def pieces(self, text: str) -> list[str]:
        """The word pieces of a text as the encoder reads them, its own signs included."""
        ids = self.encoder_.pieces([text], self.params.max_tokens).values
        return list(self.encoder_.tokenizer.convert_ids_to_tokens(ids.tolist()))

    def save(self, folder: str | Path) -> None:
        """Write params.json, all weights, and in encoder/ what describes encoder and tokenizer."""
        facts = {
            "format": FORMAT,
            "params": self.params.model_dump(mode="json"),
            "n_labels": self.n_labels_,
        }
        tensors = {name: t.detach().cpu() for name, t in self.net_.state_dict().items()}
        with atomic_folder(folder) as temporary:
            (temporary / "params.json").write_text(json.dumps(facts, indent=1) + "\n")
            save_file(tensors, temporary / "weights.safetensors")
            (temporary / "encoder").mkdir()
            for name, content in self.encoder_.files.items():
                (temporary / "encoder" / name).write_bytes(content)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Self:
        facts = read_facts(folder)
        params = params_of(facts)
        assert isinstance(params, LarobertaParams | AplcParams)
        model = cls(params)
        model.device_ = resolve(device)
        model._build(facts["n_labels"], pretrained.describe(Path(folder) / "encoder"))
        load_weights(model.net_, Path(folder) / "weights.safetensors")
        model.net_.to(model.device_).eval()
        return model

    # --- inside

    def _build(self, n_labels: int, found: Pretrained) -> None:
        self.n_labels_, self.encoder_ = n_labels, found
        with torch.random.fork_rng(devices=[]):
            if isinstance(self.params, LarobertaParams):
                self.net_: LarobertaNet | AplcNet = LarobertaNet(self.params, n_labels, found)
            else:
                self.net_ = AplcNet(self.params, n_labels, found)

    def _prepare(
        self, tokens: Ragged, kept: tuple[Path, bytes] | None, keep: bool, name: str
    ) -> WordPieces:
        """Texts for the network, their states kept where the encoder never changes them.

        ``kept`` is the folder for them and what tells this encoder from others.
        """
        params = self.params
        if not (keep and params.freeze_encoder) or params.cache == "none":
            return WordPieces(tokens)
        folder, identity = kept or (None, b"")
        pooling = params.summary if isinstance(params, AplcParams) else "pieces"
        with self._workers() as each:
            return keep_states(
                tokens,
                self.net_.fixed,
                width=self.net_.encoder.width,
                one_each=isinstance(self.net_, AplcNet),
                precision=params.cache,
                budget_mb=params.cache_mb,
                batch=params.predict_batch,
                device=self.device_,
                identity=identity + pooling.encode(),
                each=each,
                folder=folder,
                name=name,
            )

    def _judge(
        self,
        valid: tuple[Sequence[str], sp.csr_matrix] | None,
        kept: tuple[Path, bytes] | None,
    ) -> Judge | None:
        """Ranks a random sample of the validation texts."""
        if valid is None:
            return None
        tokens = self.encoder_.pieces(valid[0], self.params.max_tokens)
        known = as_csr(valid[1], "Y of validation")
        batching.check_labels(tokens, known, "validation texts")
        tokens, Y = validation_sample(tokens, known, self.params)
        pieces = self._prepare(tokens, kept, True, "encode valid")
        return lambda: (self._rank(pieces, 5), Y)

    def _rank(self, pieces: WordPieces, k: int) -> TopK:
        found = np.full((pieces.tokens.n, k), -1, np.int32)
        scores = np.full((pieces.tokens.n, k), -np.inf, np.float32)

        def rank_rows(rows: NDArray[np.int64]) -> None:
            with torch.inference_mode():
                columns, logits = self.net_.score(pieces.batch(rows, self.device_), k)
            top = rank(columns, logits, k)
            found[rows], scores[rows] = top.labels, top.scores

        with self._workers() as each:
            each(rank_rows, pieces.batches(self.params.predict_batch))
        return TopK(found, scores, "probability")

    def _workers(self) -> Any:
        return workers(self.threads_, works_alone(self.net_, self.device_))

    def _memory(self) -> Any:
        return memory_advice(self.params, self.device_)
