"""HTTN: head labels learned by a BiLSTM with attention, tail labels transferred from prototypes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from coattail import metrics, transfer
from coattail.arrays import Ragged, TopK, as_csr, atomic_folder, best_first
from coattail.config import parse
from coattail.deep import device as devices
from coattail.deep.httn_net import HttnNet, Texts, batches
from coattail.deep.start import label_vectors
from coattail.errors import DataError, ModelError
from coattail.progress import progress
from coattail.transfer import TransferParams

log_ = logging.getLogger("coattail")
Log = Callable[[dict[str, float], int], None]
# Streams of random numbers, told apart by the second number of their seed.
ORDER, SAMPLES, TUNING, VALID = 10, 11, 12, 13


class Httn:
    """Head-to-tail transfer, and the two baselines that share its network.

    Attributes
    ----------
    net_ : HttnNet
        Texts to vectors of unit length, and their learned scale.
    M_ : float32 tensor (G, L, d)
        Classifier rows of every label, once per sampling of tail texts; NaN rows for labels without
        a training text, which are never given.
    W_ : float64 (d, d) and heads_ : float32 (S, head, d)
        What turns a prototype into a row; empty for ``joint``.
    label_names_ : list of str
        Names by label id, so that a label cannot be added twice.
    """

    def __init__(self, params: TransferParams) -> None:
        self.params = params
        self.device_ = "cpu"
        self.threads_ = 0
        self.M_: Tensor

    # --- the contract ----------------------------------------------------------------------------

    def fit(
        self,
        tokens: Ragged,
        Y: sp.csr_matrix,
        *,
        vocabulary_size: int,
        valid: tuple[Ragged, sp.csr_matrix] | None = None,
        vectors: NDArray | None = None,
        label_names: list[str] | None = None,
        device: str = "cpu",
        threads: int = 0,
        log: Log | None = None,
    ) -> Httn:
        """Train on token ids and their labels (n, L).

        Parameters
        ----------
        tokens : Ragged
            Token ids of n texts; 0 is padding.
        Y : csr (n, L)
        vocabulary_size : int
            Words that token ids may name.
        valid : (tokens, Y), optional
            Texts that choose the epoch of the head classifier (by nDCG@5 over head labels).
        vectors : float (vocabulary_size, d), optional
            Pre-trained word vectors; otherwise as params.embedding_start says.
        label_names : list of str, optional
            Default: the numbers 0 to L - 1.
        log : callable
            Called with the numbers of every epoch and its number.
        """
        Y = as_csr(Y, "Y")
        _check(tokens, Y, vocabulary_size)
        names = [str(i) for i in range(Y.shape[1])] if label_names is None else list(label_names)
        if len(names) != Y.shape[1]:
            raise DataError(f"{len(names)} label names for {Y.shape[1]} labels")
        self.label_names_ = names
        self.device_, self.threads_ = devices.resolve(device), threads
        head, tail = transfer.split_labels(Y, self.params)
        with devices.threads(threads):
            self.net_ = HttnNet(self.params, self._words(tokens, Y, vocabulary_size, vectors))
            self.net_.to(self.device_)
            rows = self._learn_head(tokens, Y, head, valid, log)
            self._transfer(tokens, Y, head, tail, rows)
            if self.params.finetune and len(tail) and self.params.model == "httn":
                self._finetune(tokens, Y)
        return self

    def predict(self, tokens: Ragged, k: int) -> TopK:
        """The best k labels of every text; probabilities, averaged over the ensemble."""
        _check_ids(tokens, self.net_.vocabulary_size)
        labels = np.full((tokens.n, k), -1, np.int32)
        scores = np.full((tokens.n, k), -np.inf, np.float32)
        with devices.threads(self.threads_), torch.inference_mode():
            for texts in self._batches(tokens):
                found = self._rank(self.net_(texts), k)
                labels[texts.rows], scores[texts.rows] = found.labels, found.scores
        return TopK(labels, scores, "probability")

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
        if self.params.model == "joint":
            raise ModelError("a joint model has no transfer to add labels with; use model: httn")
        if tokens.n == 0:
            raise DataError(f"label {name!r} comes without a text; wanted at least one")
        _check_ids(tokens, self.net_.vocabulary_size)
        sample = transfer.Sample(np.array([0, tokens.n]), np.arange(tokens.n))
        row = self._rows_of(transfer.prototypes(self._vectors(tokens), sample))
        new = torch.from_numpy(row.astype(np.float32)).to(self.device_)
        self.M_ = torch.cat([self.M_, new.expand(len(self.M_), 1, -1)], dim=1)
        self.label_names_ = [*self.label_names_, name]
        return len(self.label_names_) - 1

    def save(self, folder: str | Path) -> None:
        content = {
            "params": self.params.model_dump(),
            "vocabulary_size": self.net_.vocabulary_size,
            "word_dim": self.net_.word_dim,
            "label_names": self.label_names_,
        }
        tensors = {f"net.{name}": t for name, t in self.net_.state_dict().items()}
        tensors |= {"M": self.M_, "W": torch.from_numpy(self.W_)}
        tensors["heads"] = torch.from_numpy(self.heads_)
        with atomic_folder(folder) as temporary:
            (temporary / "params.json").write_text(json.dumps(content, indent=1) + "\n")
            flat = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
            save_file(flat, temporary / "model.safetensors")

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Httn:
        folder = Path(folder)
        try:
            content = json.loads((folder / "params.json").read_text())
            tensors = load_file(folder / "model.safetensors")
            model = cls(parse(content["params"], TransferParams, str(folder / "params.json")))
            model.device_ = devices.resolve(device)
            words = torch.zeros(content["vocabulary_size"], content["word_dim"])
            model.net_ = HttnNet(model.params, words)
            state = {n[4:]: t for n, t in tensors.items() if n.startswith("net.")}
            model.net_.load_state_dict(state)
            model.net_.to(model.device_).eval()
            model.M_ = tensors["M"].to(model.device_)
            model.W_, model.heads_ = tensors["W"].numpy(), tensors["heads"].numpy()
            model.label_names_ = list(content["label_names"])
        except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
            raise ModelError(f"{folder} is not a saved HTTN model: {error}") from None
        return model

    # --- stage 1: the head classifier ------------------------------------------------------------

    def _words(
        self, tokens: Ragged, Y: sp.csr_matrix, size: int, vectors: NDArray | None
    ) -> Tensor:
        """Word vectors to start from, (vocabulary, dim)."""
        p = self.params
        if vectors is not None:
            if len(vectors) != size:
                raise DataError(f"{len(vectors)} word vectors for {size} words; run dvc repro")
            return torch.from_numpy(np.array(vectors, np.float32))
        if p.embedding_start == "labels":
            return torch.from_numpy(label_vectors(tokens, Y, size, p.embedding_dim, p.seed))
        noise = np.random.default_rng(p.seed).normal(0, 0.1, (size, p.embedding_dim))
        return torch.from_numpy(noise.astype(np.float32))

    def _learn_head(
        self,
        tokens: Ragged,
        Y: sp.csr_matrix,
        head: NDArray,
        valid: tuple[Ragged, sp.csr_matrix] | None,
        log: Log | None,
    ) -> Tensor:
        """Train the network and the rows of head labels on texts that have one; (head, d)."""
        p = self.params
        cut = Y[:, head].tocsr()
        texts = np.flatnonzero(np.diff(cut.indptr))
        tokens, cut = tokens.take(texts), cut[texts]
        generator = torch.Generator().manual_seed(p.seed)
        rows = torch.rand(len(head), p.dim, generator=generator) * 2 - 1
        rows = nn.Parameter((rows / np.sqrt(p.dim)).to(self.device_))
        optimizer = self._optimizer(rows, p.lr, p.lr_top)
        held = self._held_out(valid, head)
        rng = np.random.default_rng([p.seed, ORDER])
        best: tuple[float, dict[str, Tensor], Tensor] | None = None
        with progress("head classifier", p.epochs * tokens.n, "texts") as bar:
            for epoch in range(p.epochs):
                loss = self._epoch(tokens, cut, rows, optimizer, rng, generator, bar.advance)
                numbers = {"loss": loss}
                if held is not None:
                    numbers["valid_ndcg_at_5"] = score = self._judge(held, rows)
                    if best is None or score > best[0]:
                        state = {n: t.clone() for n, t in self.net_.state_dict().items()}
                        best = (score, state, rows.detach().clone())
                if log is not None:
                    log(numbers, epoch)
        if best is not None:
            self.net_.load_state_dict(best[1])
            return best[2]
        return rows.detach()

    def _optimizer(self, rows: nn.Parameter, lr: float, lr_top: float) -> torch.optim.Adam:
        below, above = self.net_.below(), self.net_.above()
        groups = [{"params": below, "lr": lr}, {"params": [*above, rows], "lr": lr_top}]
        return torch.optim.Adam(groups, betas=(0.9, self.params.beta2))

    def _epoch(
        self,
        tokens: Ragged,
        Y: sp.csr_matrix,
        rows: nn.Parameter,
        optimizer: torch.optim.Adam,
        rng: np.random.Generator,
        generator: torch.Generator,
        advance: Callable[[int, str], None],
    ) -> float:
        """One pass in random order; the mean loss per text."""
        total = 0.0
        self.net_.train()
        for texts in batches(tokens, self.params.max_tokens, self.params.batch, self.device_, rng):
            truth = torch.from_numpy(Y[texts.rows].toarray()).to(self.device_)
            logits = self.net_(texts, generator) @ rows.T
            loss = nn.functional.binary_cross_entropy_with_logits(logits, truth)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(loss.detach()) * len(texts.rows)
            advance(len(texts.rows), f"loss {float(loss.detach()):.4f}")
        self.net_.eval()
        return total / max(tokens.n, 1)

    def _held_out(
        self, valid: tuple[Ragged, sp.csr_matrix] | None, head: NDArray
    ) -> tuple[Ragged, sp.csr_matrix] | None:
        """Validation texts with a head label, at most params.valid_texts of them."""
        if valid is None:
            return None
        cut = as_csr(valid[1], "Y of validation")[:, head].tocsr()
        texts = np.flatnonzero(np.diff(cut.indptr))
        if not len(texts):
            return None
        rng = np.random.default_rng([self.params.seed, VALID])
        texts = np.sort(rng.permutation(texts)[: self.params.valid_texts])
        return valid[0].take(texts), cut[texts]

    def _judge(self, held: tuple[Ragged, sp.csr_matrix], rows: Tensor) -> float:
        self.M_ = rows.detach()[None]
        return metrics.judge(self.predict(held[0], 5), held[1]).ratio("ndcg", 5).percent

    # --- stages 2 and 3: prototypes and rows of tail labels --------------------------------------

    def _transfer(
        self, tokens: Ragged, Y: sp.csr_matrix, head: NDArray, tail: NDArray, rows: Tensor
    ) -> None:
        p = self.params
        nothing = (p.ensemble, Y.shape[1], p.dim)
        M = np.full(nothing, np.nan, np.float32)
        M[:, head] = rows.cpu().numpy()
        self.W_, self.heads_ = np.zeros((0, 0)), np.zeros((0, 0, 0), np.float32)
        if p.model != "joint":
            vectors = self._vectors(tokens)
            rng = np.random.default_rng([p.seed, SAMPLES])
            samples = [transfer.sample_texts(Y, head, p.t, rng) for _ in range(p.sets)]
            heads = np.stack([transfer.prototypes(vectors, sample) for sample in samples])
            self.heads_ = heads.astype(np.float32)
            self.W_ = self._learn_transfer(heads, M[0, head].astype(np.float64))
            self.tail_samples_ = [
                transfer.sample_texts(Y, tail, p.t, rng) for _ in range(p.ensemble)
            ]
            for member, sample in zip(M, self.tail_samples_, strict=True):
                member[tail] = self._rows_of(transfer.prototypes(vectors, sample))
        self.M_ = torch.from_numpy(M).to(self.device_)

    def _learn_transfer(self, heads: NDArray, rows: NDArray) -> NDArray[np.float64]:
        if self.params.model == "imprinting":
            # A prototype is the row itself, as long as a head label's row is on average.
            return np.eye(rows.shape[1]) * np.linalg.norm(rows, axis=1).mean()
        W = transfer.learn_transfer(heads, rows, self.params)
        error = np.mean((heads.mean(axis=0) @ W.T - rows) ** 2) / np.mean(rows**2)
        log_.info("transfer: %d head labels, relative error %.3f", len(rows), error)
        return W

    def _rows_of(self, prototypes: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.params.model == "imprinting":
            return np.asarray(prototypes @ self.W_.T)
        heads = self.heads_.astype(np.float64)
        return transfer.tail_rows(prototypes, heads, self.W_, self.params)

    def _finetune(self, tokens: Ragged, Y: sp.csr_matrix) -> None:
        """Everything, on the sampled tail texts with all their labels."""
        p = self.params
        texts = np.unique(self.tail_samples_[0].rows)
        seen = np.flatnonzero(~torch.isnan(self.M_[0, :, 0]).cpu().numpy())
        rows = nn.Parameter(self.M_[0, seen].clone())
        optimizer = self._optimizer(rows, p.finetune_lr, p.finetune_lr)
        rng = np.random.default_rng([p.seed, TUNING])
        generator = torch.Generator().manual_seed(p.seed + 1)
        few, truth = tokens.take(texts), Y[texts][:, seen].tocsr()
        for _ in range(p.finetune_epochs):
            self._epoch(few, truth, rows, optimizer, rng, generator, lambda by, note: None)
        self.M_[0, seen] = rows.detach()

    # --- texts to vectors to scores --------------------------------------------------------------

    def _batches(self, tokens: Ragged) -> list[Texts]:
        self.net_.eval()
        p = self.params
        return batches(tokens, p.max_tokens, p.predict_batch, self.device_, None)

    def _vectors(self, tokens: Ragged) -> NDArray[np.float32]:
        """Unit vectors (n, d) of all texts."""
        out = np.zeros((tokens.n, self.params.dim), np.float32)
        with devices.threads(self.threads_), torch.inference_mode():
            for texts in self._batches(tokens):
                out[texts.rows] = self.net_.unit_vectors(texts).cpu().numpy()
        return out

    def _rank(self, vectors: Tensor, k: int) -> TopK:
        """The best k of a batch of scaled vectors (B, d)."""
        logits = torch.einsum("bd,gld->bgl", vectors, self.M_)
        scores = torch.sigmoid(logits).mean(dim=1)
        scores = torch.nan_to_num(scores, nan=-1.0)  # labels without a training text
        best, labels = scores.topk(min(k, scores.shape[1]), dim=1)
        found, values = labels.cpu().numpy(), best.cpu().numpy()
        return best_first(np.where(values < 0, -1, found), values, k)


def _check(tokens: Ragged, Y: sp.csr_matrix, vocabulary_size: int) -> None:
    if tokens.n != Y.shape[0]:
        raise DataError(f"{tokens.n} texts but Y has {Y.shape[0]} rows; wanted the same number")
    if Y.nnz == 0:
        raise DataError("no training text has a label, so there is nothing to learn; check Y")
    _check_ids(tokens, vocabulary_size)


def _check_ids(tokens: Ragged, vocabulary_size: int) -> None:
    values: Any = tokens.values
    if len(values) and (values.min() < 0 or values.max() >= vocabulary_size):
        raise DataError(
            f"token ids reach from {values.min()} to {values.max()} but the vocabulary has "
            f"{vocabulary_size} words; run dvc repro preprocess"
        )
