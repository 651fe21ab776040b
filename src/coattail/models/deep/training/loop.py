"""The training loop: steps, evaluations, averaging, early stop, and checkpoints to go on from."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from coattail.files import atomic_file
from coattail.models import begun_with
from coattail.models.deep.batching import epoch_batches
from coattail.models.deep.deep_params import NetworkParams
from coattail.models.deep.device import usage
from coattail.models.deep.training import processes
from coattail.models.deep.training.batch_pieces import Each, Pieces, in_turn, workers
from coattail.models.deep.training.optimiser import Adam, NormQueue, WeightAverage
from coattail.progress import Progress, progress

log = logging.getLogger("coattail")

Log = Callable[[dict[str, float], int], None]


@dataclass(frozen=True)
class Moment:
    """Which part of which step is computed: all that random numbers may depend on."""

    step: int
    epoch: int
    piece: int  # of the batch


# Adds the gradients of some texts to a net, with the random numbers given; their mean loss.
Backward = Callable[[Any, NDArray[np.int64], torch.Generator, Moment], Tensor]


@dataclass
class Position:
    """Where training stands; everything about it that is not a tensor."""

    begun_with: begun_with.Inputs
    epoch: int = 0
    batch: int = 0  # batches of this epoch already done
    step: int = 0
    loss_sum: float = 0.0  # over the texts of this epoch
    texts: int = 0
    best: float = -math.inf
    stale: int = 0  # evaluations since the best
    average_count: int = 0
    norms: list[float] = field(default_factory=lambda: [math.inf])
    done: bool = False


class Trainer:
    """Runs ``backward`` over random batches and leaves the best weights in ``net``.

    Random numbers depend on the seed, the step and the piece of the batch only, so a run that was
    killed and started again from its checkpoint ends with the same weights. Several processes
    compute different pieces of the same batches and hold the same weights; one of them evaluates,
    speaks and writes. Of what ``evaluate`` finds, the first number chooses the best weights.
    """

    def __init__(
        self,
        net: nn.Module,
        params: NetworkParams,
        lengths: NDArray[np.int64],
        backward: Backward,
        evaluate: Callable[[], dict[str, float]] | None,
        *,
        device: str,
        inputs: begun_with.Inputs,
        name: str = "train",
        log: Log | None = None,
        checkpoint: Path | None = None,
    ) -> None:
        self.net, self.params, self.lengths = net, params, lengths
        self.backward, self.evaluate = backward, evaluate
        self.device, self.name, self.log, self.checkpoint = device, name, log, checkpoint
        self.weights = {n: p for n, p in net.named_parameters() if p.requires_grad}
        rates = {name: params.rate_of(name) for name in self.weights}
        self.adam = Adam(
            self.weights, rates, params.beta2, params.weight_decay, warmup=params.warmup_steps
        )
        self.queue = NormQueue(params.clip_queue) if params.clip_queue else None
        self.average = WeightAverage(self.weights)
        self.best: dict[str, Tensor] = {}
        self.at = Position(inputs)
        self.pieces = Pieces(net, self.weights, params.pieces, device)
        self.each: Each = in_turn

    # --- the loop

    def run(self) -> None:
        self._resume()
        processes.check_same("steps", self.at.step, self.device)
        n, epochs = len(self.lengths), self.params.epochs
        with (
            workers(torch.get_num_threads(), self.pieces.alone) as self.each,
            progress(self.name, n * epochs, "texts", shown=processes.leads()) as bar,
        ):
            bar.advance(min(self.at.epoch, epochs) * n + self.at.texts, new=False)
            while self.at.epoch < epochs and not self.at.done:
                self._epoch(bar)
        if not self.at.done:
            self.at.done = True
            self._save()
        self._settle()

    def _epoch(self, bar: Progress) -> None:
        at, params = self.at, self.params
        batches = epoch_batches(
            self.lengths, params.batch, np.random.default_rng([params.seed, at.epoch])
        )
        if at.epoch == params.swa_from and at.batch == 0:
            self.average.start()
        every = params.evaluate_every
        start, texts_before, found = time.monotonic(), at.texts, {}
        while at.batch < len(batches) and not at.done:
            rows = batches[at.batch]
            self.adam.scale = 1 - (1 - params.lr_end) * at.step / (params.epochs * len(batches))
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

    def _step(self, rows: NDArray[np.int64]) -> float:
        self.adam.zero_grad()
        loss = self.pieces.backward(rows, self._piece, self.each)
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"{self.name}: loss is {loss} at step {self.at.step}; lower lr (now "
                f"{self.params.lr})"
            )
        if self.queue is not None:
            self.queue.clip(self.weights)
        self.adam.step(self.each)
        return loss

    def _piece(self, net: nn.Module, rows: NDArray[np.int64], piece: int) -> Tensor:
        generator = torch.Generator(self.device)
        generator.manual_seed(step_seed(self.params.seed, self.at.step, piece))
        return self.backward(net, rows, generator, Moment(self.at.step, self.at.epoch, piece))

    def _check(self) -> dict[str, float]:
        """Average the weights, evaluate them, remember the best; count those without progress."""
        self.average.update()
        if self.evaluate is None:
            return {}
        self.average.swap()
        threads = torch.get_num_threads()
        found = self.evaluate() if processes.leads() else {}
        # Numba's kernels share OpenMP with torch and set its number of threads when they start.
        torch.set_num_threads(threads)
        score = processes.from_leader(next(iter(found.values()), math.nan), self.device)
        if score > self.at.best:
            self.at.best, self.at.stale = score, 0
            self.best = {name: p.detach().clone() for name, p in self.weights.items()}
        else:
            self.at.stale += 1
        self.average.swap()
        if self.params.patience and self.at.stale > self.params.patience:
            log.info("%s: no better nDCG@5 in %d evaluations, stopping", self.name, self.at.stale)
            self.at.done = True
        return found

    def _tell(self, numbers: dict[str, float], found: dict[str, float], seconds: float) -> None:
        found = {name: value for name, value in found.items() if not math.isnan(value)}
        numbers = numbers | dict(list(found.items())[:1]) | usage(self.device)
        words = ", ".join(f"{key} {value:.4g}" for key, value in numbers.items())
        log.info("%s: epoch %d, %s, %.1f s", self.name, self.at.epoch, words, seconds)
        if self.log is not None and processes.leads():
            self.log(numbers | found, self.at.epoch)

    @torch.no_grad()
    def _settle(self) -> None:
        """Leave the best weights in the net; without validation the average, or the last."""
        chosen = self.best or self.average.mean
        for name, value in chosen.items():
            self.weights[name].copy_(value)
        self.adam.zero_grad()

    # --- checkpoints

    def _save(self) -> None:
        if self.checkpoint is None or not processes.leads():
            return
        self.at.norms = list(self.queue.norms) if self.queue is not None else []
        self.at.average_count = self.average.count
        tensors = {f"weight.{k}": p.detach() for k, p in self.weights.items()}
        tensors |= {f"adam.{k}": t for k, t in self.adam.state().items()}
        tensors |= {f"mean.{k}": t for k, t in self.average.mean.items()}
        tensors |= {f"best.{k}": t for k, t in self.best.items()}
        with atomic_file(self.checkpoint) as temporary:
            save_file(tensors, temporary, metadata={"position": json.dumps(asdict(self.at))})

    @torch.no_grad()
    def _resume(self) -> None:
        if self.checkpoint is None or not self.checkpoint.exists():
            return
        loaded = _read_checkpoint(self.checkpoint)
        before = loaded[0].begun_with if loaded else {}
        if loaded is None or before != self.at.begun_with:
            begun_with.starts_anew(self.name, self.checkpoint, before, self.at.begun_with)
            return
        self.at, tensors = loaded
        for name, p in self.weights.items():
            p.copy_(tensors[f"weight.{name}"])
        self.adam.restore(_under(tensors, "adam."), self.at.step)
        if self.queue is not None:
            self.queue.norms.clear()
            self.queue.norms.extend(self.at.norms)
        self.average.count = self.at.average_count
        self.average.mean = self._to_device(_under(tensors, "mean."))
        self.best = self._to_device(_under(tensors, "best."))
        log.info("%s: going on at epoch %d, step %d", self.name, self.at.epoch, self.at.step)

    def _to_device(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.to(self.device) for name, tensor in tensors.items()}


def step_seed(seed: int, step: int, piece: int = 0) -> int:
    """A seed for one piece of one step that neighbours do not share."""
    return int(np.random.SeedSequence([seed, step, piece]).generate_state(1, np.uint64)[0] >> 1)


def _read_checkpoint(path: Path) -> tuple[Position, dict[str, Tensor]] | None:
    try:
        with safe_open(path, framework="pt") as file:
            at = Position(**json.loads((file.metadata() or {})["position"]))
            return at, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, TypeError, ValueError):
        return None


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Any]:
    return {k[len(prefix) :]: t for k, t in tensors.items() if k.startswith(prefix)}
