"""What HTTN and its rivals share: one text encoder, its training, ranking, and files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from coattail.arrays import Ragged, TopK, best_first
from coattail.data.text import PAD
from coattail.errors import DataError, ModelError
from coattail.evaluation import metrics
from coattail.labels import frequency
from coattail.models.deep import batching
from coattail.models.deep.batching import Batch
from coattail.models.deep.deep_model import DeepModel
from coattail.models.deep.fit_data import FitData, RunContext, checked_tokens
from coattail.models.deep.nets.loss import positive_weights
from coattail.models.deep.training.checkpoint import Checkpoint
from coattail.models.deep.training.loop import Course, Moment, Rows, Run
from coattail.models.deep.training.optimiser import TorchAdam, learned
from coattail.models.deep.training.ranking import rank_all
from coattail.models.deep.training.word_start import label_vectors
from coattail.models.deep.transfer.encoder_net import HttnNet
from coattail.models.deep.transfer.transfer_kinds import KINDS
from coattail.models.deep.transfer.transfer_params import EncoderParams
from coattail.models.kinds import ModelKind

Held = tuple[Ragged, sp.csr_matrix]
Rank = Callable[[Batch, int], TopK]
# Streams of random numbers, told apart by the second number of their seed.
ORDER, SAMPLES, TUNING, VALID, WALKS = 10, 11, 12, 13, 14
# Texts are sorted by length within so many batches drawn at random.
POOL = 20


class EncoderParts(nn.Module):
    """The encoder and what is learned on top of it."""

    def __init__(
        self, net: HttnNet, rows: Sequence[nn.Parameter] = (), top: nn.Module | None = None
    ) -> None:
        """``rows`` are classifier rows (labels, d)."""
        super().__init__()
        self.net, self.top = net, top
        self.rows = nn.ParameterList(rows)
        self.in_threads = net.in_threads


class Chance(NamedTuple):
    """Random numbers of one step."""

    dropout: torch.Generator
    samples: np.random.Generator


# The mean loss of a batch of texts in an epoch.
Loss = Callable[[Any, Batch, Chance, int], Tensor]


class EncoderLesson(NamedTuple):
    """One training run of the encoder and the classifier on top of it."""

    name: str
    part: str  # names its checkpoint
    learned: EncoderParts
    tokens: Ragged
    loss: Loss
    epochs: int
    dropout: torch.Generator
    order: list[int]  # seed of the order of texts
    judge: Callable[[], float] | None = None
    measure: str = "valid_ndcg_at_5"  # what the judge finds
    lr: float | None = None  # for everything, instead of the two of the params


class EncoderModel(DeepModel[Ragged]):
    """Base of the models of the stage ``transfer``.

    A subclass says what it learns (``_teach``), how it ranks a batch (``_rank``), and which tensors
    it keeps beside the encoder (``_tensors``, ``_restore``).

    Attributes
    ----------
    net_ : HttnNet
        Texts to vectors of unit length, and their learned scale.
    label_names_ : list of str
        Names by label id; without given ones the numbers 0 to L - 1.
    """

    params: Any  # the params class of the subclass
    reads: ClassVar[str] = "tokens"
    stage: ClassVar[str] = "transfer"
    kinds: ClassVar[Sequence[ModelKind]] = KINDS

    # --- for subclasses to fill in ---------------------------------------------------------------

    def _teach(self, data: FitData[Ragged], run: Run) -> None:
        raise NotImplementedError

    def _rank(self, texts: Batch, k: int) -> TopK:
        raise NotImplementedError

    def _tensors(self) -> dict[str, Tensor]:
        raise NotImplementedError

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        raise NotImplementedError

    def _save_more(self, folder: Path) -> None:
        """Files beside params.json and model.safetensors."""

    def _load_more(self, folder: Path) -> None:
        """What ``_save_more`` wrote."""

    # --- what the base class asks for -----------------------------------------------------------

    def _checked(self, data: FitData[Ragged]) -> FitData[Ragged]:
        data = checked_tokens(data)
        if data.Y.nnz == 0:
            raise DataError("no training text has a label, so there is nothing to learn; check Y")
        if data.label_names is not None and len(data.label_names) != data.Y.shape[1]:
            raise DataError(f"{len(data.label_names)} label names for {data.Y.shape[1]} labels")
        return data

    def _learn(self, data: FitData[Ragged], context: RunContext) -> None:
        names = range(data.Y.shape[1]) if data.label_names is None else data.label_names
        self.label_names_ = [str(name) for name in names]
        self.net_ = HttnNet(self.params, self._words(data)).to(self.device_)
        checkpoint = Checkpoint.of(context.checkpoint, self.params, data.named())
        self._teach(data, Run(context, checkpoint))
        self.net_.eval()

    def _ranked(self, inputs: Ragged, k: int) -> TopK:
        batching.check_tokens(inputs, self.net_.vocabulary_size, "texts to rank")
        return self._rank_with(inputs, k, self._rank)

    def _facts(self) -> dict[str, Any]:
        return {
            "params": self.params.model_dump(),
            "vocabulary_size": self.net_.vocabulary_size,
            "word_dim": self.net_.word_dim,
            "label_names": self.label_names_,
        }

    def _write(self, folder: Path) -> None:
        tensors = {f"net.{name}": t for name, t in self.net_.state_dict().items()}
        tensors |= self._tensors()
        flat = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
        save_file(flat, folder / "model.safetensors")
        self._save_more(folder)

    def _read(self, facts: dict[str, Any], folder: Path) -> None:
        try:
            tensors = load_file(folder / "model.safetensors")
            words = torch.zeros(facts["vocabulary_size"], facts["word_dim"])
            self.net_ = HttnNet(self.params, words)
            state = {n[4:]: t for n, t in tensors.items() if n.startswith("net.")}
            self.net_.load_state_dict(state)
            self.net_.to(self.device_).eval()
            self.label_names_ = list(facts["label_names"])
            self._restore({n: t.to(self.device_) for n, t in tensors.items()})
            self._load_more(folder)
        except FileNotFoundError as error:
            raise ModelError(f"{folder}: {error.filename or error} is missing") from None
        except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
            raise ModelError(f"{folder} is not a saved transfer model: {error}") from None

    # --- training --------------------------------------------------------------------------------

    def _words(self, data: FitData[Ragged]) -> Tensor:
        """Word vectors to start from, (vocabulary, dim)."""
        p: EncoderParams = self.params
        size = data.vocabulary_size
        if data.vectors is not None:
            return torch.from_numpy(np.array(data.vectors, np.float32))
        if p.embedding_start == "labels":
            start = label_vectors(data.inputs, data.Y, size, p.embedding_dim, p.seed)
            return torch.from_numpy(start)
        noise = np.random.default_rng(p.seed).normal(0, 0.1, (size, p.embedding_dim))
        return torch.from_numpy(noise.astype(np.float32))

    def _learn_rows(
        self,
        data: FitData[Ragged],
        columns: NDArray,
        run: Run,
        name: str = "classifier",
        every_text: bool = False,
        unit_rows: bool = False,
    ) -> Tensor:
        """Train the encoder and rows (columns, d) for some labels, on the texts that have one."""
        p: EncoderParams = self.params
        cut = data.Y[:, columns].tocsr()
        texts = np.arange(cut.shape[0]) if every_text else np.flatnonzero(np.diff(cut.indptr))
        generator = torch.Generator().manual_seed(p.seed)
        rows = self._rows(len(columns), generator)
        self._start_offset(cut[texts])
        shape = normalize if unit_rows else as_it_is

        def rank(batch: Batch, k: int) -> TopK:
            return ranked(torch.sigmoid(self.net_.logits(batch, shape(rows))), None, k)

        lesson = EncoderLesson(
            name,
            "classifier",
            EncoderParts(self.net_, [rows]),
            data.inputs.take(texts),
            self._classify(cut[texts], data.propensity, shape),
            p.epochs,
            generator,
            [p.seed, ORDER],
            self._judge(data.valid, columns, rank),
        )
        self._train(lesson, run)
        return shape(rows).detach()

    def _train(self, lesson: EncoderLesson, run: Run) -> None:
        """Follow the lesson; with a judge the weights of the best epoch stay."""
        p: EncoderParams = self.params
        weights = learned(lesson.learned)
        below = ("net.words.", "net.forth.", "net.back.")
        rates = {
            name: lesson.lr or (p.lr if name.startswith(below) else p.lr_top) for name in weights
        }
        samples = np.random.default_rng([p.seed, SAMPLES])
        own = Chance(lesson.dropout, samples)
        judge = lesson.judge
        lengths = np.minimum(lesson.tokens.lengths, p.max_tokens)

        def backward(
            net: EncoderParts, rows: Rows, generator: torch.Generator, at: Moment
        ) -> Tensor:
            chance = own
            if p.pieces > 1:  # pieces must not wait for one another's random numbers
                seed = [p.seed, SAMPLES, at.step, at.piece]
                chance = Chance(generator, np.random.default_rng(seed))
            loss = lesson.loss(net, self._pad(lesson.tokens, rows), chance, at.epoch)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()

        course = Course(
            lesson.name,
            lesson.learned,
            weights,
            TorchAdam(weights, rates, p.beta2),
            backward,
            lesson.tokens.n,
            batching.Shuffles(lengths, p.batch, lesson.order, POOL),
            p.seed,
            lesson.epochs,
            None if judge is None else lambda: {lesson.measure: judge()},
            pieces=p.pieces,
            patience=p.patience,
            streams=own._asdict(),
        )
        run.train(course, run.checkpoint.part(lesson.part))

    def _positive_weights(self, Y: sp.csr_matrix, propensity: tuple[float, float]) -> Tensor | None:
        """Weights of the positives of each column, as ``weighting`` says."""
        p: EncoderParams = self.params
        n, counts = Y.shape[0], frequency.counts(Y)
        weights = positive_weights(p.weighting, counts, n, propensity, p.beta)
        return None if weights is None else torch.from_numpy(weights).to(self.device_)

    def _classify(
        self, Y: sp.csr_matrix, propensity: tuple[float, float], shape: Callable[[Tensor], Tensor]
    ) -> Loss:
        """Plain training: cross-entropy of ``rows . text`` over the columns of Y."""
        weights = self._positive_weights(Y, propensity)

        def loss(part: EncoderParts, texts: Batch, chance: Chance, epoch: int) -> Tensor:
            logits = part.net.logits(texts, shape(part.rows[0]), chance.dropout)
            truth = batching.dense_targets(Y, texts.rows, self.device_)
            return binary_cross_entropy_with_logits(logits, truth, pos_weight=weights)

        return loss

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
        cut = valid[1][:, columns].tocsr()
        texts = np.flatnonzero(np.diff(cut.indptr))
        if not len(texts):
            return None
        rng = np.random.default_rng([self.params.seed, VALID])
        texts = np.sort(rng.permutation(texts)[: self.params.valid_texts])
        return valid[0].take(texts), cut[texts]

    def _judge(
        self, valid: Held | None, columns: NDArray, rank: Rank
    ) -> Callable[[], float] | None:
        """nDCG@5 of a ranking of these labels for validation texts."""
        held = self._held_out(valid, columns)
        if held is None:
            return None
        tokens, Y = held

        def judge() -> float:
            top = self._rank_with(tokens, 5, rank)
            return metrics.judge(top, Y).ratio("ndcg", 5).percent

        return judge

    # --- texts to vectors to scores --------------------------------------------------------------

    def _pad(self, tokens: Ragged, rows: NDArray[np.int64]) -> Batch:
        # As wide as the longest text, an empty one a word of padding: so it was in all HTTN's runs.
        p = self.params
        return batching.pad(tokens, rows, p.max_tokens, self.device_, multiple=1, empty=PAD)

    def _batches(self, tokens: Ragged) -> list[Rows]:
        lengths = np.minimum(tokens.lengths, self.params.max_tokens)
        return list(batching.sorted_batches(lengths, self.params.predict_batch))

    def _rank_with(self, tokens: Ragged, k: int, rank: Rank) -> TopK:
        def rank_rows(rows: Rows) -> TopK:
            with torch.inference_mode():
                return rank(self._pad(tokens, rows), k)

        with self._workers(self.net_) as each:
            return rank_all(tokens.n, k, self._batches(tokens), rank_rows, each)

    def _vectors(self, tokens: Ragged) -> NDArray[np.float32]:
        """Unit vectors (n, d) of all texts."""
        out = np.zeros((tokens.n, self.params.dim), np.float32)

        def fill(rows: Rows) -> None:
            with torch.inference_mode():
                out[rows] = self.net_.unit_vectors(self._pad(tokens, rows)).cpu().numpy()

        with self._workers(self.net_) as each:
            each(fill, self._batches(tokens))
        return out

    def _kept_vectors(self, tokens: Ragged, run: Run, part: str) -> NDArray[np.float32]:
        """``_vectors`` of the training texts, or those that an interrupted run has kept."""
        compute = lambda: {"vectors": self._vectors(tokens)}  # noqa: E731
        vectors: NDArray[np.float32] = run.checkpoint.arrays(part, compute)["vectors"]
        return vectors


def as_it_is(rows: Tensor) -> Tensor:
    return rows


def ranked(scores: Tensor, columns: NDArray | None, k: int) -> TopK:
    """The best k of scores (B, m); column j is label ``columns[j]``, a negative score nothing."""
    # A stable sort, not topk: of equal scores at the last rank the smaller label is kept.
    best, place = scores.sort(dim=1, descending=True, stable=True)
    found, values = place[:, :k].cpu().numpy(), best[:, :k].cpu().numpy()
    names = found if columns is None else columns[found]
    return best_first(np.where(values < 0, -1, names), values, k)
