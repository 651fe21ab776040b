"""What HTTN and its rivals share: one text encoder, its training, ranking, and files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from coattail.arrays import Ragged, TopK, as_csr, best_first
from coattail.config import parse
from coattail.errors import DataError, ModelError
from coattail.evaluation import metrics
from coattail.files import atomic_folder
from coattail.labels import frequency
from coattail.models.deep import device as devices
from coattail.models.deep.nets.loss import positive_weights
from coattail.models.deep.training.plain_adam import PlainAdam
from coattail.models.deep.training.word_start import label_vectors
from coattail.models.deep.transfer.encoder_net import HttnNet, Texts, batches
from coattail.models.deep.transfer.transfer_params import EncoderParams, TransferParams
from coattail.models.fitted import Fitted
from coattail.progress import progress

Log = Callable[[dict[str, float], int], None]
Held = tuple[Ragged, sp.csr_matrix]
Rank = Callable[[Texts, int], TopK]
# Streams of random numbers, told apart by the second number of their seed.
ORDER, SAMPLES, TUNING, VALID, WALKS = 10, 11, 12, 13, 14


@dataclass(frozen=True)
class Course:
    """One training of the encoder with what stands on it."""

    name: str
    tokens: Ragged
    epochs: int
    step: Callable[[Texts, torch.Generator, int], Tensor]  # loss of a batch in an epoch
    extra: list[nn.Parameter]  # learned beside the encoder, at lr_top
    generator: torch.Generator  # of dropout
    order: np.random.Generator
    judge: Callable[[], float] | None = None  # after an epoch; the best weights stay
    measure: str = "valid_ndcg_at_5"
    first: int = 0  # number of the first epoch in the log
    lr: float | None = None  # for everything, instead of the two of the params


class EncoderModel(Fitted):
    """Base of the models of the stage ``transfer``.

    A subclass says what it learns (``_learn``), how it ranks a batch (``_rank``), and which tensors
    it keeps beside the encoder (``_tensors``, ``_restore``).

    Attributes
    ----------
    net_ : HttnNet
        Texts to vectors of unit length, and their learned scale.
    label_names_ : list of str
        Names by label id.
    """

    def __init__(self, params: Any) -> None:
        self.params: Any = params  # the params class of the subclass
        self.device_ = "cpu"
        self.threads_ = 0
        self.propensity_ = (0.55, 1.5)

    # --- the contract ----------------------------------------------------------------------------

    def fit(
        self,
        tokens: Ragged,
        Y: sp.csr_matrix,
        *,
        vocabulary_size: int,
        valid: Held | None = None,
        vectors: NDArray | None = None,
        label_names: list[str] | None = None,
        propensity: tuple[float, float] = (0.55, 1.5),
        device: str = "cpu",
        threads: int = 0,
        log: Log | None = None,
    ) -> Self:
        """Train on token ids and their labels (n, L).

        Parameters
        ----------
        tokens : Ragged
            Token ids of n texts; 0 is padding.
        Y : csr (n, L)
        vocabulary_size : int
            Words that token ids may name.
        valid : (tokens, Y), optional
            Texts that choose the epoch.
        vectors : float (vocabulary_size, d), optional
            Pre-trained word vectors; otherwise as params.embedding_start says.
        label_names : list of str, optional
            Default: the numbers 0 to L - 1.
        propensity : (A, B)
            The dataset's constants, for ``weighting``.
        log : callable
            Called with the numbers of every epoch and its number.
        """
        Y = as_csr(Y, "Y")
        _check(tokens, Y, vocabulary_size)
        names = [str(i) for i in range(Y.shape[1])] if label_names is None else list(label_names)
        if len(names) != Y.shape[1]:
            raise DataError(f"{len(names)} label names for {Y.shape[1]} labels")
        self.label_names_, self.propensity_ = names, propensity
        self.device_, self.threads_ = devices.resolve(device), devices.undivided(threads)
        with devices.threads(self.threads_):
            words = self._words(tokens, Y, vocabulary_size, vectors)
            self.net_ = HttnNet(self.params, words).to(self.device_)
            self._learn(tokens, Y, valid, log)
            self.net_.eval()
        return self

    def predict(self, tokens: Ragged, k: int) -> TopK:
        """The best k labels of every text, with probabilities."""
        check_ids(tokens, self.net_.vocabulary_size)
        return self._predict(tokens, k, self._rank)

    def save(self, folder: str | Path) -> None:
        content = {
            "params": self.params.model_dump(),
            "vocabulary_size": self.net_.vocabulary_size,
            "word_dim": self.net_.word_dim,
            "label_names": self.label_names_,
        }
        tensors = {f"net.{name}": t for name, t in self.net_.state_dict().items()}
        tensors |= self._tensors()
        with atomic_folder(folder) as temporary:
            (temporary / "params.json").write_text(json.dumps(content, indent=1) + "\n")
            flat = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
            save_file(flat, temporary / "model.safetensors")
            self._save_more(temporary)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Self:
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
            model.label_names_ = list(content["label_names"])
            model._restore({n: t.to(model.device_) for n, t in tensors.items()})
            model._load_more(folder)
        except FileNotFoundError as error:
            raise ModelError(f"{folder}: {error.filename or error} is missing") from None
        except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
            raise ModelError(f"{folder} is not a saved transfer model: {error}") from None
        return model

    # --- for subclasses to fill in ---------------------------------------------------------------

    def _learn(self, tokens: Ragged, Y: sp.csr_matrix, valid: Held | None, log: Log | None) -> None:
        raise NotImplementedError

    def _rank(self, texts: Texts, k: int) -> TopK:
        raise NotImplementedError

    def _tensors(self) -> dict[str, Tensor]:
        raise NotImplementedError

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        raise NotImplementedError

    def _save_more(self, folder: Path) -> None:
        """Files beside params.json and model.safetensors."""

    def _load_more(self, folder: Path) -> None:
        """What ``_save_more`` wrote."""

    # --- training --------------------------------------------------------------------------------

    def _words(
        self, tokens: Ragged, Y: sp.csr_matrix, size: int, vectors: NDArray | None
    ) -> Tensor:
        """Word vectors to start from, (vocabulary, dim)."""
        p: EncoderParams = self.params
        if vectors is not None:
            if len(vectors) != size:
                raise DataError(f"{len(vectors)} word vectors for {size} words; run dvc repro")
            return torch.from_numpy(np.array(vectors, np.float32))
        if p.embedding_start == "labels":
            return torch.from_numpy(label_vectors(tokens, Y, size, p.embedding_dim, p.seed))
        noise = np.random.default_rng(p.seed).normal(0, 0.1, (size, p.embedding_dim))
        return torch.from_numpy(noise.astype(np.float32))

    def _learn_rows(
        self,
        tokens: Ragged,
        Y: sp.csr_matrix,
        columns: NDArray,
        valid: Held | None,
        log: Log | None,
        name: str = "classifier",
        every_text: bool = False,
        unit_rows: bool = False,
    ) -> Tensor:
        """Train the encoder and rows (columns, d) for some labels, on the texts that have one."""
        p: EncoderParams = self.params
        cut = Y[:, columns].tocsr()
        texts = np.arange(tokens.n) if every_text else np.flatnonzero(np.diff(cut.indptr))
        generator = torch.Generator().manual_seed(p.seed)
        rows = self._rows(len(columns), generator)
        held = self._held_out(valid, columns)
        self._start_offset(cut[texts])
        shape = normalize if unit_rows else as_it_is

        def rank(batch: Texts, k: int) -> TopK:
            return ranked(torch.sigmoid(self.net_.logits(batch, shape(rows))), None, k)

        course = Course(
            name,
            tokens.take(texts),
            p.epochs,
            self._classify(cut[texts], rows, shape),
            [rows],
            generator,
            np.random.default_rng([p.seed, ORDER]),
            None if held is None else lambda: self._ndcg(held, rank),
        )
        self._run(course, log)
        return shape(rows).detach()

    def _run(self, course: Course, log: Log | None = None) -> None:
        """Train as the course says; with a judge the weights of the best epoch stay."""
        learned = [*self.net_.parameters(), *course.extra]
        optimizer = self._optimizer(course)
        best: tuple[float, list[Tensor]] | None = None
        with progress(course.name, course.epochs * course.tokens.n, "texts") as bar:
            for epoch in range(course.epochs):
                numbers = {"loss": self._epoch(course, epoch, optimizer, bar.advance)}
                if course.judge is not None:
                    numbers[course.measure] = score = course.judge()
                    if best is None or score > best[0]:
                        best = score, [t.detach().clone() for t in learned]
                if log is not None:
                    log(numbers, course.first + epoch)
        if best is not None:
            with torch.no_grad():
                for tensor, kept in zip(learned, best[1], strict=True):
                    tensor.copy_(kept)

    def _optimizer(self, course: Course) -> PlainAdam:
        lr, lr_top = course.lr or self.params.lr, course.lr or self.params.lr_top
        groups = [(self.net_.below(), lr), ([*self.net_.above(), *course.extra], lr_top)]
        return PlainAdam(groups, self.params.beta2)

    def _epoch(
        self,
        course: Course,
        epoch: int,
        optimizer: PlainAdam,
        advance: Callable[[int, str], None],
    ) -> float:
        """One pass in random order; the mean loss per text."""
        total, p = 0.0, self.params
        self.net_.train()
        for texts in batches(course.tokens, p.max_tokens, p.batch, self.device_, course.order):
            loss = course.step(texts, course.generator, epoch)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(loss.detach()) * len(texts.rows)
            advance(len(texts.rows), f"loss {float(loss.detach()):.4f}")
        self.net_.eval()
        return total / max(course.tokens.n, 1)

    def _positive_weights(self, Y: sp.csr_matrix) -> Tensor | None:
        """Weights of the positives of each column, as ``weighting`` says."""
        p: EncoderParams = self.params
        n, counts = Y.shape[0], frequency.counts(Y)
        weights = positive_weights(p.weighting, counts, n, self.propensity_, p.beta)
        return None if weights is None else torch.from_numpy(weights).to(self.device_)

    def _classify(
        self, Y: sp.csr_matrix, rows: nn.Parameter, shape: Callable[[Tensor], Tensor]
    ) -> Callable[[Texts, torch.Generator, int], Tensor]:
        """A step of plain training: cross-entropy of ``rows . text`` over the columns of Y."""
        weights = self._positive_weights(Y)

        def step(texts: Texts, generator: torch.Generator, epoch: int) -> Tensor:
            logits = self.net_.logits(texts, shape(rows), generator)
            truth = self._truth(Y, texts.rows)
            return binary_cross_entropy_with_logits(logits, truth, pos_weight=weights)

        return step

    def _truth(self, Y: sp.csr_matrix, rows: NDArray) -> Tensor:
        """Rows of Y as 0 and 1, (B, columns)."""
        return torch.from_numpy(Y[rows].toarray()).to(self.device_)

    def _rows(self, count: int, generator: torch.Generator) -> nn.Parameter:
        """Untrained classifier rows (count, d)."""
        d = self.params.dim
        rows = torch.rand(count, d, generator=generator) * 2 - 1
        return nn.Parameter((rows / np.sqrt(d)).to(self.device_))

    @torch.no_grad()
    def _start_offset(self, Y: sp.csr_matrix) -> None:
        """Let the untrained model predict how often a label occurs at all."""
        if self.params.offset:
            odds = Y.nnz / max(Y.shape[0] * Y.shape[1] - Y.nnz, 1)
            self.net_.offset.fill_(float(np.log(odds)))

    def _held_out(self, valid: Held | None, columns: NDArray) -> Held | None:
        """Validation texts with one of these labels, at most params.valid_texts of them."""
        if valid is None:
            return None
        cut = as_csr(valid[1], "Y of validation")[:, columns].tocsr()
        texts = np.flatnonzero(np.diff(cut.indptr))
        if not len(texts):
            return None
        rng = np.random.default_rng([self.params.seed, VALID])
        texts = np.sort(rng.permutation(texts)[: self.params.valid_texts])
        return valid[0].take(texts), cut[texts]

    def _ndcg(self, held: Held, rank: Rank) -> float:
        top = self._predict(held[0], 5, rank)
        return metrics.judge(top, held[1]).ratio("ndcg", 5).percent

    # --- texts to vectors to scores --------------------------------------------------------------

    def _predict(self, tokens: Ragged, k: int, rank: Rank) -> TopK:
        found = np.full((tokens.n, k), -1, np.int32)
        scores = np.full((tokens.n, k), -np.inf, np.float32)
        with devices.threads(self.threads_), torch.inference_mode():
            for texts in self._batches(tokens):
                top = rank(texts, k)
                found[texts.rows], scores[texts.rows] = top.labels, top.scores
        return TopK(found, scores, "probability")

    def _batches(self, tokens: Ragged) -> list[Texts]:
        self.net_.eval()
        p: EncoderParams = self.params
        return batches(tokens, p.max_tokens, p.predict_batch, self.device_, None)

    def _vectors(self, tokens: Ragged) -> NDArray[np.float32]:
        """Unit vectors (n, d) of all texts."""
        out = np.zeros((tokens.n, self.params.dim), np.float32)
        with devices.threads(self.threads_), torch.inference_mode():
            for texts in self._batches(tokens):
                out[texts.rows] = self.net_.unit_vectors(texts).cpu().numpy()
        return out


def as_it_is(rows: Tensor) -> Tensor:
    return rows


def ranked(scores: Tensor, columns: NDArray | None, k: int) -> TopK:
    """The best k of scores (B, m); column j is label ``columns[j]``, a negative score nothing."""
    # A stable sort, not topk: of equal scores at the last rank the smaller label is kept.
    best, place = scores.sort(dim=1, descending=True, stable=True)
    found, values = place[:, :k].cpu().numpy(), best[:, :k].cpu().numpy()
    names = found if columns is None else columns[found]
    return best_first(np.where(values < 0, -1, names), values, k)


def _check(tokens: Ragged, Y: sp.csr_matrix, vocabulary_size: int) -> None:
    if tokens.n != Y.shape[0]:
        raise DataError(f"{tokens.n} texts but Y has {Y.shape[0]} rows; wanted the same number")
    if Y.nnz == 0:
        raise DataError("no training text has a label, so there is nothing to learn; check Y")
    check_ids(tokens, vocabulary_size)


def check_ids(tokens: Ragged, vocabulary_size: int) -> None:
    """Token ids must name words of the vocabulary."""
    values: Any = tokens.values
    if len(values) and (values.min() < 0 or values.max() >= vocabulary_size):
        raise DataError(
            f"token ids reach from {values.min()} to {values.max()} but the vocabulary has "
            f"{vocabulary_size} words; run dvc repro preprocess"
        )
