"""Fitting one network: its first weights, its steps, and its metrics on validation texts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coattail.arrays import Ragged, TopK
from coattail.evaluation import metrics
from coattail.labels import frequency
from coattail.models.deep import batching
from coattail.models.deep.deep_params import (
    AttentionXmlParams,
    BilstmParams,
    NetworkParams,
    XmlCnnParams,
)
from coattail.models.deep.device import autocast
from coattail.models.deep.nets.aplc import AplcNet
from coattail.models.deep.nets.attentionxml import AttentionNet, LabelAttention
from coattail.models.deep.nets.layers import Mixture, Reading, initialise
from coattail.models.deep.nets.loss import positive_weights
from coattail.models.deep.nets.pooled import BilstmNet, XmlCnnNet
from coattail.models.deep.nets.step import Step
from coattail.models.deep.nets.tail_mix import TailMixer
from coattail.models.deep.nets.transformer import LarobertaNet
from coattail.models.deep.training import word_start
from coattail.models.deep.training.loop import Backward, Course, Moment, Rows
from coattail.models.deep.training.optimiser import Adam, learned

WordNet = AttentionNet | XmlCnnNet | BilstmNet
AnyNet = WordNet | LarobertaNet | AplcNet
# Labels to attend to for some rows at a moment: int64 (B, C); None: the net's choice.
Columns = Callable[[Rows, Moment], Tensor]
# A ranking of validation texts by the net as it is, and their labels.
Judge = Callable[[], tuple[TopK, sp.csr_matrix]]
# The texts of the given rows on a device, padded.
Batches = Callable[[Rows, str], batching.Batch]


@dataclass(frozen=True)
class Lesson:
    """What one network learns, and from what."""

    name: str
    net: AnyNet
    params: NetworkParams
    tokens: Ragged  # n texts, as the net's words
    Y: sp.csr_matrix  # (n, L), labels of the texts or clusters of them
    propensity: tuple[float, float]
    judge: Judge | None = None
    over_labels: bool = True  # columns of Y are labels, no clusters of them
    columns: Columns | None = None
    batches: Batches | None = None  # None: tokens, padded

    def batch(self, rows: Rows, device: str) -> batching.Batch:
        if self.batches is not None:
            return self.batches(rows, device)
        return batching.pad(self.tokens, rows, self.params.max_tokens, device)


def course_of(lesson: Lesson, device: str) -> Course:
    """How the lesson's network is trained, as its params say."""
    counts, n, params = frequency.counts(lesson.Y), lesson.tokens.n, lesson.params
    weights = positive_weights(params.weighting, counts, n, lesson.propensity, params.beta)
    weight = None if weights is None else torch.from_numpy(weights).to(device)
    rarity = frequency.inverse_propensity(counts, n, *lesson.propensity)
    mixer = Mixer(params, lesson.Y, rarity)

    def backward(net: AnyNet, rows: Rows, generator: torch.Generator, at: Moment) -> Tensor:
        batch = lesson.batch(rows, device)
        targets = batching.dense_targets(lesson.Y, rows, device)
        step = Step(targets, weight, generator, *mixer.at(len(rows), at, device))
        with autocast(device):
            if lesson.columns is None or not isinstance(net, AttentionNet):
                return net.backward(batch, step)
            encoded, columns = net.encode(batch, Reading(generator)), lesson.columns(rows, at)
            return net.backward_columns(batch, encoded, columns, step)

    def judge() -> dict[str, float]:
        assert lesson.judge is not None
        return measured(*lesson.judge(), rarity, lesson.over_labels)

    lengths = batching.used_lengths(lesson.tokens, params.max_tokens)
    plan = plain_course(lesson.name, lesson.net, params, lengths, backward)
    return replace(plan, judge=None if lesson.judge is None else judge)


def plain_course(
    name: str, net: nn.Module, params: NetworkParams, lengths: NDArray[np.int64], backward: Backward
) -> Course:
    """A training by ``params`` over texts of these lengths, without a judge."""
    weights = learned(net)

    def batches(epoch: int) -> list[Rows]:
        rng = np.random.default_rng([params.seed, epoch])
        return batching.epoch_batches(lengths, params.batch, rng)

    return Course(
        name,
        net,
        weights,
        Adam(
            weights,
            {name: params.rate_of(name) for name in weights},
            params.beta2,
            params.weight_decay,
            warmup=params.warmup_steps,
        ),
        backward,
        len(lengths),
        batches,
        params.seed,
        params.epochs,
        pieces=params.pieces,
        patience=params.patience,
        evaluate_every=params.evaluate_every,
        swa_from=params.swa_from,
        lr_end=params.lr_end,
        clip_queue=params.clip_queue,
    )


def validation_sample(
    tokens: Ragged, Y: sp.csr_matrix, params: NetworkParams
) -> tuple[Ragged, sp.csr_matrix]:
    """``valid_texts`` random texts at most; the first ones of a file are seldom typical."""
    if tokens.n <= params.valid_texts:
        return tokens, Y
    rng = np.random.default_rng([params.seed, 11])
    rows = np.sort(rng.choice(tokens.n, params.valid_texts, replace=False))
    return tokens.take(rows), Y[rows]


def measured(
    top: TopK, Y: sp.csr_matrix, rarity: NDArray[np.float64], over_labels: bool
) -> dict[str, float]:
    """Metrics after an epoch: nDCG@5 first, which chooses the weights, then those of the search."""
    judged = metrics.judge(top, Y, rarity)
    if not over_labels:
        return {"level_ndcg_at_5": judged.ratio("ndcg", 5).percent}
    names = dict.fromkeys(("ndcg_at_5", *metrics.FOLLOWED))
    asked = {name: name.split("_at_") for name in names}
    return {
        f"valid_{name}": judged.ratio(metric, int(k)).percent for name, (metric, k) in asked.items()
    }


MIXED_PLACES = {"wordmix": "word", "hiddenmix": "hidden", "tmix": "layer", "ssmix": "span"}


class Mixer:
    """What is mixed at a step: nothing, whole texts, or labels."""

    def __init__(self, params: NetworkParams, Y: sp.csr_matrix, rarity: NDArray) -> None:
        self.params = params
        self.tailmix = None
        if params.mix == "tailmix":
            self.tailmix = TailMixer(
                Y,
                rarity,
                params.mix_targets,
                params.mix_alpha,
                params.use_similarity,
                params.use_graph,
            )

    def at(self, size: int, at: Moment, device: str) -> tuple[Mixture | None, TailMixer | None]:
        """The mixture of ``size`` texts; pieces of a batch draw their own random numbers."""
        params = self.params
        if params.mix == "none" or at.epoch < params.mix_from:
            return None, None
        seed = [params.seed, at.step, 13, at.piece]
        if self.tailmix is not None:
            tailmix = copy.copy(self.tailmix)
            tailmix.seed(seed)
            return None, tailmix
        rng = np.random.default_rng(seed)
        share = rng.beta(params.mix_alpha, params.mix_alpha, size).astype(np.float32)
        partner = torch.from_numpy(rng.permutation(size)).to(device)
        place = MIXED_PLACES[params.mix]
        if params.mix == "tmix":  # as published: a text stays the larger part of its mixture
            share = np.maximum(share, 1 - share)
        return Mixture(partner, torch.from_numpy(share).to(device), place), None


def build_net(params: NetworkParams, n_labels: int, vocabulary_size: int, dim: int) -> WordNet:
    """The untrained network of ``params``; torch's global random numbers stay as they are."""
    with torch.random.fork_rng(devices=[]):
        return _net(params, n_labels, vocabulary_size, dim)


def _net(params: NetworkParams, n_labels: int, vocabulary_size: int, dim: int) -> WordNet:
    if isinstance(params, AttentionXmlParams):
        head = params.tree == "flat" and params.candidates > 0
        return AttentionNet(params, n_labels, vocabulary_size, dim, head)
    if isinstance(params, XmlCnnParams):
        return XmlCnnNet(params, n_labels, vocabulary_size, dim)
    if isinstance(params, BilstmParams):
        return BilstmNet(params, n_labels, vocabulary_size, dim)
    raise TypeError(f"{params.model} reads texts, not tokens")


def start_weights(
    net: WordNet, params: NetworkParams, tokens: Ragged, Y: sp.csr_matrix, vectors: NDArray | None
) -> None:
    """Fresh weights of one seed; word vectors as given or from the labels."""
    size, dim = net.words.table.weight.shape
    initialise(net, torch.Generator().manual_seed(params.seed))
    if vectors is not None:
        net.words.fill(np.asarray(vectors))
    elif net.params.embedding_start == "labels":
        net.words.fill(word_start.label_vectors(tokens, Y, size, dim, params.seed))
    start_outputs(net, tokens, Y, size)


@torch.no_grad()
def start_outputs(net: AnyNet, tokens: Ragged, Y: sp.csr_matrix, vocabulary_size: int) -> None:
    """Make the untrained net predict how often labels occur.

    From zero, Adam would need a thousand steps only to learn that labels are rare.
    """
    counts = frequency.counts(Y)
    log_odds = np.log((counts + 0.5) / (tokens.n - counts + 0.5)).astype(np.float32)
    if isinstance(net, AplcNet):
        net.start_outputs(Y)
        return
    if not isinstance(net, LabelAttention):
        net.output.bias.copy_(torch.from_numpy(log_odds))
        return
    if net.outputs is not None:
        net.outputs.zero_()
    scored = len(counts)
    if net.head is not None:
        params = net.params
        words = word_start.bag_start(tokens, Y, vocabulary_size, params.head_dim, params.seed)
        net.head.fill(*words, log_odds)
        scored = min(scored, params.candidates)
    share = min(float((counts.sum() + 0.5) / (tokens.n * scored + 1)), 0.5)
    net.fc.layers[-1].bias.fill_(float(np.log(share / (1 - share))))
