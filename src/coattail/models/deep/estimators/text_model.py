"""Models over a pre-trained encoder as the pipeline sees them: texts in, rankings out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from coattail.arrays import Ragged, TopK
from coattail.errors import ModelError
from coattail.models.deep.deep_model import load_weights, wanted_labels, weights_of
from coattail.models.deep.deep_params import AplcParams, LarobertaParams
from coattail.models.deep.estimators.network_model import NetworkModel
from coattail.models.deep.fit_data import FitData, RunContext
from coattail.models.deep.nets import pretrained
from coattail.models.deep.nets.aplc import AplcNet
from coattail.models.deep.nets.layers import initialise
from coattail.models.deep.nets.pretrained import Pretrained
from coattail.models.deep.nets.transformer import LarobertaNet
from coattail.models.deep.training.checkpoint import Checkpoint
from coattail.models.deep.training.fitting import (
    Judge,
    Lesson,
    course_of,
    start_outputs,
    validation_sample,
)
from coattail.models.deep.training.frozen_states import Keeping, WordPieces, keep_states
from coattail.models.deep.training.loop import Run
from coattail.models.deep.training.ranking import rank, rank_all

CACHEABLE = ("none", "tailmix", "hiddenmix")
"""Mixtures that leave the encoder's states as they are; the others run inside it."""


class Kept(NamedTuple):
    """Where states of a frozen encoder are kept, and what tells this encoder from others."""

    folder: Path
    identity: bytes


class TextModel(NetworkModel[Sequence[str]]):
    """LaRoBERTa or APLC over a pre-trained encoder, which reads texts with its own words.

    Attributes
    ----------
    net_ : the trained network; encoder_ : its encoder and tokenizer.
    """

    reads: ClassVar[str] = "texts"
    params: LarobertaParams | AplcParams

    def explain(self, text: str, wanted: list[int] | NDArray) -> NDArray[np.float32]:
        """Attention on the word pieces of one text for each wanted label: (labels, pieces).

        ``pieces`` gives the word pieces themselves.
        """
        if not isinstance(self.net_, LarobertaNet):
            raise ModelError(f"{self.params.model} has no attention to explain; use laroberta")
        columns = wanted_labels(wanted, self.n_labels_)
        tokens = self.encoder_.pieces([text], self.params.max_tokens)
        batch = WordPieces(tokens).batch(np.array([0]), self.device_)
        weights = self.net_.weigh(batch, columns.to(self.device_))
        return weights[0, :, : int(batch.lengths[0])].cpu().numpy()

    def pieces(self, text: str) -> list[str]:
        """The word pieces of a text as the encoder reads them, its own signs included."""
        ids = self.encoder_.pieces([text], self.params.max_tokens).values
        return list(self.encoder_.tokenizer.convert_ids_to_tokens(ids.tolist()))

    # --- inside

    def _learn(self, data: FitData[Sequence[str]], context: RunContext) -> None:
        found = pretrained.load(self.params.encoder)
        tokens = found.pieces(data.inputs, self.params.max_tokens)
        identity = found.identity()
        kept = Kept(context.checkpoint.parent / "states", identity) if context.checkpoint else None
        things = data.named() | {"encoder": identity}
        checkpoint = Checkpoint.of(context.checkpoint, self.params, things)
        self._build(data.Y.shape[1], found)
        initialise(self.net_, torch.Generator().manual_seed(self.params.seed))
        start_outputs(self.net_, tokens, data.Y, found.vocabulary_size)
        self.net_.to(self.device_)
        pieces = self._prepare(tokens, kept, self.params.mix in CACHEABLE, "encode train")
        lesson = Lesson(
            f"train {self.params.model}",
            self.net_,
            self.params,
            tokens,
            data.Y,
            data.propensity,
            self._judge(data.valid, kept),
            batches=pieces.batch,
        )
        Run(context, checkpoint).train(course_of(lesson, self.device_))
        self.net_.eval()

    def _build(self, n_labels: int, found: Pretrained) -> None:
        self.n_labels_, self.encoder_ = n_labels, found
        with torch.random.fork_rng(devices=[]):
            if isinstance(self.params, LarobertaParams):
                self.net_: LarobertaNet | AplcNet = LarobertaNet(self.params, n_labels, found)
            else:
                self.net_ = AplcNet(self.params, n_labels, found)

    def _prepare(self, tokens: Ragged, kept: Kept | None, keep: bool, name: str) -> WordPieces:
        """Texts for the network, their states kept where the encoder never changes them."""
        params = self.params
        if not (keep and params.freeze_encoder) or params.cache == "none":
            return WordPieces(tokens)
        folder, identity = kept or (None, b"")
        pooling = params.summary if isinstance(params, AplcParams) else "pieces"
        keeping = Keeping(
            width=self.net_.encoder.width,
            one_each=isinstance(self.net_, AplcNet),
            precision=params.cache,
            budget_mb=params.cache_mb,
            batch=params.predict_batch,
            device=self.device_,
            identity=identity + pooling.encode(),
            folder=folder,
        )
        with self._workers(self.net_) as each:
            return keep_states(tokens, self.net_.fixed, keeping, each, name)

    def _judge(
        self, valid: tuple[Sequence[str], sp.csr_matrix] | None, kept: Kept | None
    ) -> Judge | None:
        """Ranks a random sample of the validation texts."""
        if valid is None:
            return None
        tokens = self.encoder_.pieces(valid[0], self.params.max_tokens)
        tokens, Y = validation_sample(tokens, valid[1], self.params)
        pieces = self._prepare(tokens, kept, True, "encode valid")
        return lambda: (self._rank(pieces, 5), Y)

    def _ranked(self, inputs: Sequence[str], k: int) -> TopK:
        return self._rank(WordPieces(self.encoder_.pieces(inputs, self.params.max_tokens)), k)

    def _rank(self, pieces: WordPieces, k: int) -> TopK:
        def rank_rows(rows: NDArray[np.int64]) -> TopK:
            with torch.inference_mode():
                columns, logits = self.net_.score(pieces.batch(rows, self.device_), k)
            return rank(columns, logits, k)

        batches = pieces.batches(self.params.predict_batch)
        with self._workers(self.net_) as each:
            return rank_all(pieces.tokens.n, k, batches, rank_rows, each)

    def _write(self, folder: Path) -> None:
        """All weights, and in encoder/ what describes encoder and tokenizer."""
        save_file(weights_of(self.net_), folder / "weights.safetensors")
        (folder / "encoder").mkdir()
        for name, content in self.encoder_.files.items():
            (folder / "encoder" / name).write_bytes(content)

    def _read(self, facts: dict[str, Any], folder: Path) -> None:
        self._build(facts["n_labels"], pretrained.describe(folder / "encoder"))
        load_weights(self.net_, folder / "weights.safetensors")
        self.net_.to(self.device_).eval()
