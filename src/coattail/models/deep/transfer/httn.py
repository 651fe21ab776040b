"""HTTN: head labels learned by a BiLSTM with attention, tail labels transferred from prototypes."""

from __future__ import annotations

import logging

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coattail.arrays import Ragged, TopK
from coattail.errors import DataError, ModelError
from coattail.models.deep.batching import Batch, check_tokens
from coattail.models.deep.fit_data import FitData
from coattail.models.deep.training.loop import Run
from coattail.models.deep.transfer import prototypes
from coattail.models.deep.transfer.encoder_model import (
    SAMPLES,
    TUNING,
    EncoderLesson,
    EncoderModel,
    EncoderParts,
    as_it_is,
    ranked,
)
from coattail.models.deep.transfer.transfer_params import PrototypeParams

log_ = logging.getLogger("coattail")


class Httn(EncoderModel):
    """Head-to-tail transfer, and the two baselines that share its network.

    Attributes
    ----------
    M_ : float32 tensor (G, L, d)
        Classifier rows of every label, once per sampling of tail texts; NaN rows for labels without
        a training text, which are never given.
    W_ : float64 (d, d) and heads_ : float32 (S, head, d)
        What turns a prototype into a row; empty for ``joint``.
    """

    params: PrototypeParams
    M_: Tensor

    def add_label(self, name: str, tokens: Ragged) -> int:
        """Add a label known from a few texts, without training; returns its id.

        The texts' vectors give a prototype, the transfer turns it into a classifier row. Nothing
        else changes: the scores of all other labels stay as they are.
        """
        if name in self.label_names_:
            raise ModelError(
                f"label {name!r} exists (id {self.label_names_.index(name)}); "
                "choose another name, or retrain with the new texts to improve it"
            )
        if self.params.tail_rows == "learned":
            raise ModelError("a joint model has no transfer to add labels with; use model: httn")
        if tokens.n == 0:
            raise DataError(f"label {name!r} comes without a text; wanted at least one")
        check_tokens(tokens, self.net_.vocabulary_size, f"texts of label {name!r}")
        sample = prototypes.Sample(np.array([0, tokens.n]), np.arange(tokens.n))
        row = self._rows_of(prototypes.prototypes(self._vectors(tokens), sample))
        new = torch.from_numpy(row.astype(np.float32)).to(self.device_)
        self.M_ = torch.cat([self.M_, new.expand(len(self.M_), 1, -1)], dim=1)
        self.label_names_ = [*self.label_names_, name]
        return len(self.label_names_) - 1

    def _teach(self, data: FitData[Ragged], run: Run) -> None:
        head, tail = prototypes.split_labels(data.Y, self.params)
        # Imprinting puts prototypes beside rows, so these have unit length too.
        unit_rows = self.params.tail_rows == "prototypes"
        rows = self._learn_rows(data, head, run, "head classifier", unit_rows=unit_rows)
        self._transfer(data, head, tail, rows, run)
        if self.params.finetune and len(tail) and self.params.tail_rows == "transferred":
            self._finetune(data, run)
            # The encoder has moved: a label that is added later needs prototypes from where it is.
            vectors = self._kept_vectors(data.inputs, run, "tuned-vectors")
            self._learn_from_heads(vectors, self.M_[0, head].cpu().numpy(), run, "tuned-transfer")

    def _rank(self, texts: Batch, k: int) -> TopK:
        logits = torch.einsum("bd,gld->bgl", self.net_(texts), self.M_) + self.net_.offset
        scores = torch.sigmoid(logits).mean(dim=1)
        return ranked(torch.nan_to_num(scores, nan=-1.0), None, k)

    def _tensors(self) -> dict[str, Tensor]:
        transferred = {"W": self.W_, "heads": self.heads_}
        return {"M": self.M_} | {name: torch.from_numpy(t) for name, t in transferred.items()}

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        self.M_ = tensors["M"]
        self.W_, self.heads_ = tensors["W"].cpu().numpy(), tensors["heads"].cpu().numpy()

    # --- stages 2 and 3: prototypes and rows of tail labels --------------------------------------

    def _transfer(
        self, data: FitData[Ragged], head: NDArray, tail: NDArray, rows: Tensor, run: Run
    ) -> None:
        p, Y = self.params, data.Y
        M = np.full((p.ensemble, Y.shape[1], p.dim), np.nan, np.float32)
        M[:, head] = rows.cpu().numpy()
        self.W_, self.heads_ = np.zeros((0, 0)), np.zeros((0, 0, 0), np.float32)
        if p.tail_rows != "learned":
            vectors = self._kept_vectors(data.inputs, run, "vectors")
            rng = np.random.default_rng([p.seed, SAMPLES])
            self.head_samples_ = [prototypes.sample_texts(Y, head, p.t, rng) for _ in range(p.sets)]
            self._learn_from_heads(vectors, M[0, head], run, "transfer")
            self.tail_samples_ = [
                prototypes.sample_texts(Y, tail, p.t, rng) for _ in range(p.ensemble)
            ]
            for member, sample in zip(M, self.tail_samples_, strict=True):
                member[tail] = self._rows_of(prototypes.prototypes(vectors, sample))
        self.M_ = torch.from_numpy(M).to(self.device_)

    def _learn_from_heads(
        self, vectors: NDArray[np.float32], rows: NDArray[np.float32], run: Run, part: str
    ) -> None:
        """Prototypes of head labels, and what turns them into their classifier rows."""

        def compute() -> dict[str, NDArray]:
            samples = self.head_samples_
            heads = np.stack([prototypes.prototypes(vectors, sample) for sample in samples])
            W = self._learn_transfer(heads, rows.astype(np.float64))
            return {"heads": heads.astype(np.float32), "W": W}

        found = run.checkpoint.arrays(part, compute)
        self.heads_, self.W_ = found["heads"], found["W"]

    def _learn_transfer(self, heads: NDArray, rows: NDArray) -> NDArray[np.float64]:
        if self.params.tail_rows == "prototypes":
            return np.eye(rows.shape[1])  # a prototype is the row itself
        W = prototypes.learn_transfer(heads, rows, self.params)
        error = np.mean((heads.mean(axis=0) @ W.T - rows) ** 2) / np.mean(rows**2)
        log_.info("transfer: %d head labels, relative error %.3f", len(rows), error)
        return W

    def _rows_of(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.params.tail_rows == "prototypes":
            return np.asarray(vectors @ self.W_.T)
        heads = self.heads_.astype(np.float64)
        return prototypes.tail_rows(vectors, heads, self.W_, self.params)

    def _finetune(self, data: FitData[Ragged], run: Run) -> None:
        """Everything, on the sampled tail texts with all their labels."""
        p = self.params
        texts = np.unique(self.tail_samples_[0].rows)
        seen = np.flatnonzero(~torch.isnan(self.M_[0, :, 0]).cpu().numpy())
        rows = nn.Parameter(self.M_[0, seen].clone())
        lesson = EncoderLesson(
            "fine-tuning",
            "fine-tuning",
            EncoderParts(self.net_, [rows]),
            data.inputs.take(texts),
            self._classify(data.Y[texts][:, seen].tocsr(), data.propensity, as_it_is),
            p.finetune_epochs,
            torch.Generator().manual_seed(p.seed + 1),
            [p.seed, TUNING],
            lr=p.finetune_lr,
        )
        self._train(lesson, run)
        self.M_[0, seen] = rows.detach()
