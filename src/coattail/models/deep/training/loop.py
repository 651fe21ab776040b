"""The training loop of all networks: steps, evaluations, averaging, early stop, checkpoints."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coattail.models.deep.device import usage
from coattail.models.deep.fit_data import RunContext
from coattail.models.deep.training import processes
from coattail.models.deep.training.batch_pieces import Each, Pieces, in_turn, workers
from coattail.models.deep.training.checkpoint import Checkpoint
from coattail.models.deep.training.optimiser import NormQueue, Optimiser, WeightAverage
from coattail.progress import Progress, progress

log = logging.getLogger("coattail")

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Moment:
    """Which part of which step is computed: all that random numbers may depend on."""

    step: int
    epoch: int
    piece: int  # of the batch


# Adds the gradients of some texts to a net, with the random numbers given; their mean loss.
Backward = Callable[[Any, Rows, torch.Generator, Moment], Tensor]
# Generators of random numbers, by name.
Streams = Mapping[str, torch.Generator | np.random.Generator]


@dataclass(frozen=True)
class Course:
    """One training of a network, from its first step to the weights that are kept.

    The first number that ``judge`` returns chooses the best weights, which are kept; without a
    judge these are the averaged weights, or the last ones. By default nothing is averaged or
    clipped, and all epochs are trained.
    """

    name: str
    net: nn.Module
    weights: dict[str, Tensor]  # of the net, those that are learned
    optimiser: Optimiser
    backward: Backward
    n_texts: int
    batches: Callable[[int], list[Rows]]  # of an epoch; always the same for the same epoch
    seed: int
    epochs: int
    judge: Callable[[], dict[str, float]] | None = None
    pieces: int = 1  # parts of a batch that threads and processes compute side by side
    patience: int = 0  # evaluations without progress before training stops; 0: never
    evaluate_every: int = 0  # steps; 0: once an epoch
    swa_from: int = -1  # epoch at whose start weight averaging begins; -1: never
    lr_end: float = 1.0  # share of the step size that is left at the last step
    clip_queue: int = 0  # norms remembered for clipping; 0: no clipping
    # Generators that ``backward`` draws from, step after step. A checkpoint keeps their states.
    # With more than one piece their order would be a matter of luck, so then they are not used.
    streams: Streams = field(default_factory=dict)


@dataclass
class Position:
    """Resumable state that is not a tensor."""

    epoch: int = 0
    batch: int = 0  # batches of this epoch already done
    step: int = 0
    loss_sum: float = 0.0  # over the texts of this epoch
    texts: int = 0
    best: float = -math.inf
    stale: int = 0  # evaluations since the best
    average_count: int = 0
    norms: list[float] = field(default_factory=lambda: [math.inf])
    streams: dict[str, Any] = field(default_factory=dict)  # states of numpy's generators
    done: bool = False


class Trainer:
    """Follows a course and leaves the best weights in its net.

    Random numbers depend on the seed, the step and the piece of the batch only, or their state is
    in the checkpoint. So a run that was killed and started again ends with the same weights.
    Several processes compute different pieces of the same batches and hold the same weights; the
    leader evaluates, logs and writes.
    """

    def __init__(
        self,
        course: Course,
        context: RunContext,
        checkpoint: Checkpoint,
        first_epoch: int = 0,
    ) -> None:
        """``first_epoch`` is the number of the first epoch in the log."""
        self.course, self.context, self.checkpoint = course, context, checkpoint
        self.first_epoch, self.device = first_epoch, context.device
        self.queue = NormQueue(course.clip_queue) if course.clip_queue else None
        self.average = WeightAverage(course.weights)
        self.best: dict[str, Tensor] = {}
        self.at = Position()
        self.pieces = Pieces(course.net, course.weights, course.pieces, self.device)
        self.each: Each = in_turn

    # --- the loop

    def run(self) -> int:
        """Train to the end; the number of epochs that this took, earlier runs included."""
        self._resume()
        processes.check_same("steps", self.at.step, self.device)
        n, epochs = self.course.n_texts, self.course.epochs
        with (
            workers(torch.get_num_threads(), self.pieces.alone) as self.each,
            progress(self.course.name, n * epochs, "texts", shown=processes.leads()) as bar,
        ):
            bar.advance(min(self.at.epoch, epochs) * n + self.at.texts, new=False)
            while self.at.epoch < epochs and not self.at.done:
                self._epoch(bar)
        if not self.at.done:
            self.at.done = True
            self._save()
        self._settle()
        return self.at.epoch

    def _epoch(self, bar: Progress) -> None:
        at, course = self.at, self.course
        batches = course.batches(at.epoch)
        if at.epoch == course.swa_from and at.batch == 0:
            self.average.start()
        every = course.evaluate_every
        start, texts_before, found = time.monotonic(), at.texts, {}
        while at.batch < len(batches) and not at.done:
            rows = batches[at.batch]
            passed = at.step / (course.epochs * len(batches))
            course.optimiser.scale = 1 - (1 - course.lr_end) * passed
            loss = self._step(rows)
            at.batch, at.step = at.batch + 1, at.step + 1
            at.loss_sum, at.texts = at.loss_sum + loss * len(rows), at.texts + len(rows)
            bar.advance(len(rows), f"loss {at.loss_sum / at.texts:.4f}")
            if every and at.step % every == 0 and at.batch < len(batches):
                found = self._check()
                self._save()
        seconds = time.monotonic() - start
        if not at.done:
            # The last check of an epoch is taken by all, so that short runs have one.
            found = self._check()
        numbers = {
            "loss": at.loss_sum / max(at.texts, 1),
            "texts_per_second": (at.texts - texts_before) / max(seconds, 1e-9),
        }
        self._tell(numbers, found, seconds)
        at.epoch, at.batch, at.texts, at.loss_sum = at.epoch + 1, 0, 0, 0.0
        self._save()

    def _step(self, rows: Rows) -> float:
        course = self.course
        course.optimiser.zero_grad()
        loss = self.pieces.backward(rows, self._piece, self.each)
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"{course.name}: loss is {loss} at step {self.at.step}; lower the step size (lr)"
            )
        if self.queue is not None:
            self.queue.clip(course.weights)
        course.optimiser.step(self.each)
        return loss

    def _piece(self, net: nn.Module, rows: Rows, piece: int) -> Tensor:
        generator = torch.Generator(self.device)
        generator.manual_seed(step_seed(self.course.seed, self.at.step, piece))
        at = Moment(self.at.step, self.at.epoch, piece)
        return self.course.backward(net, rows, generator, at)

    def _check(self) -> dict[str, float]:
        """Average the weights, evaluate them, remember the best; count those without progress."""
        self.average.update()
        if self.course.judge is None:
            return {}
        self.average.swap()
        threads = torch.get_num_threads()
        found = self.course.judge() if processes.leads() else {}
        # Numba's kernels share OpenMP with torch and set its number of threads when they start.
        torch.set_num_threads(threads)
        score = processes.from_leader(next(iter(found.values()), math.nan), self.device)
        if score > self.at.best:
            self.at.best, self.at.stale = score, 0
            self.best = {name: p.detach().clone() for name, p in self.course.weights.items()}
        else:
            self.at.stale += 1
        self.average.swap()
        if self.course.patience and self.at.stale > self.course.patience:
            log.info("%s: no progress in %d evaluations, stopping", self.course.name, self.at.stale)
            self.at.done = True
        return found

    def _tell(self, numbers: dict[str, float], found: dict[str, float], seconds: float) -> None:
        found = {name: value for name, value in found.items() if not math.isnan(value)}
        numbers = numbers | dict(list(found.items())[:1]) | usage(self.device)
        words = ", ".join(f"{key} {value:.4g}" for key, value in numbers.items())
        log.info("%s: epoch %d, %s, %.1f s", self.course.name, self.at.epoch, words, seconds)
        if self.context.log is not None and processes.leads():
            self.context.log(numbers | found, self.first_epoch + self.at.epoch)

    @torch.no_grad()
    def _settle(self) -> None:
        """Leave the best weights in the net; without validation the average, or the last."""
        chosen = self.best or self.average.mean
        for name, value in chosen.items():
            self.course.weights[name].copy_(value)
        self.course.optimiser.zero_grad()

    # --- checkpoints

    def _save(self) -> None:
        if self.checkpoint.path is None or not processes.leads():
            return
        at, streams = self.at, self.course.streams
        at.norms = list(self.queue.norms) if self.queue is not None else []
        at.average_count = self.average.count
        tensors = {f"weight.{k}": p.detach() for k, p in self.course.weights.items()}
        tensors |= {f"adam.{k}": t for k, t in self.course.optimiser.state().items()}
        tensors |= {f"mean.{k}": t for k, t in self.average.mean.items()}
        tensors |= {f"best.{k}": t for k, t in self.best.items()}
        for name, stream in streams.items():
            if isinstance(stream, torch.Generator):
                tensors[f"stream.{name}"] = stream.get_state()
            else:
                at.streams[name] = stream.bit_generator.state
        self.checkpoint.write(tensors, asdict(at))

    @torch.no_grad()
    def _resume(self) -> None:
        found = self.checkpoint.read(self.course.name)
        if found is None:
            return
        tensors, facts = found
        self.at = Position(**facts)
        for name, p in self.course.weights.items():
            p.copy_(tensors[f"weight.{name}"])
        self.course.optimiser.restore(_under(tensors, "adam."), self.at.step)
        if self.queue is not None:
            self.queue.norms.clear()
            self.queue.norms.extend(self.at.norms)
        self.average.count = self.at.average_count
        self.average.mean = self._to_device(_under(tensors, "mean."))
        self.best = self._to_device(_under(tensors, "best."))
        for name, stream in self.course.streams.items():
            if isinstance(stream, torch.Generator):
                stream.set_state(tensors[f"stream.{name}"])
            else:
                stream.bit_generator.state = self.at.streams[name]
        words = "%s: going on at epoch %d, step %d"
        log.info(words, self.course.name, self.at.epoch, self.at.step)

    def _to_device(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.to(self.device) for name, tensor in tensors.items()}


class Run:
    """Runs the trainings of one model one after the other and numbers their epochs through."""

    def __init__(self, context: RunContext, checkpoint: Checkpoint) -> None:
        self.context, self.checkpoint = context, checkpoint
        self.epochs = 0

    def train(self, course: Course, checkpoint: Checkpoint | None = None) -> None:
        """Follow a course, with the checkpoint of this fit or one of its parts."""
        trainer = Trainer(course, self.context, checkpoint or self.checkpoint, self.epochs)
        self.epochs += trainer.run()


def step_seed(seed: int, step: int, piece: int = 0) -> int:
    """A seed for one piece of one step that neighbours do not share."""
    return int(np.random.SeedSequence([seed, step, piece]).generate_state(1, np.uint64)[0] >> 1)


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k[len(prefix) :]: t for k, t in tensors.items() if k.startswith(prefix)}
