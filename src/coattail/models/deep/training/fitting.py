"""Fitting one network: where it starts, what a step does, how it is judged and ranks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from coattail.arrays import Ragged, TopK, best_first
from coattail.evaluation import metrics
from coattail.labels import frequency
from coattail.models import begun_with
from coattail.models.deep import batching
from coattail.models.deep.deep_params import AttentionXmlParams, BilstmParams, XmlCnnParams
from coattail.models.deep.device import autocast
from coattail.models.deep.nets.aplc import AplcNet
from coattail.models.deep.nets.attentionxml import AttentionNet, LabelAttention
from coattail.models.deep.nets.layers import Mixture, initialise
from coattail.models.deep.nets.loss import positive_weights
from coattail.models.deep.nets.pooled import BilstmNet, XmlCnnNet
from coattail.models.deep.nets.tail_mix import TailMixer
from coattail.models.deep.nets.transformer import LarobertaNet
from coattail.models.deep.training import word_start
from coattail.models.deep.training.loop import AnyParams, Log, Moment, Trainer

WordNet = AttentionNet | XmlCnnNet | BilstmNet
AnyNet = WordNet | LarobertaNet | AplcNet
# Labels to attend to for some rows at a moment: int64 (B, C); None: the net's choice.
Columns = Callable[[NDArray[np.int64], Moment], Tensor]
# A ranking of validation texts by the net as it is, and their labels.
Judge = Callable[[], tuple[TopK, sp.csr_matrix]]
# The texts of the given rows on a device, padded.
Batches = Callable[[NDArray[np.int64], str], batching.Batch]


def fit_net(
    net: AnyNet,
    params: AnyParams,
    tokens: Ragged,
    Y: sp.csr_matrix,
    judge: Judge | None,
    *,
    device: str,
    propensity: tuple[float, float],
    name: str,
    inputs: begun_with.Inputs | None = None,
    over_labels: bool = True,
    columns: Columns | None = None,
    batches: Batches | None = None,
    log: Log | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Train ``net`` on texts and labels (n, L) and leave the best weights in it.

    ``judge`` ranks validation texts. ``over_labels``: columns of Y are labels, no clusters of them.
    ``inputs`` is all that the result depends on; ``checkpoint`` goes on only with the same.
    """
    counts = frequency.counts(Y)
    weights = positive_weights(params.weighting, counts, tokens.n, propensity, params.beta)
    weight = None if weights is None else torch.from_numpy(weights).to(device)
    rarity = frequency.inverse_propensity(counts, tokens.n, *propensity)
    mixer = Mixer(params, Y, rarity)
    evaluate = None if judge is None else lambda: measured(*judge(), rarity, over_labels)

    def backward(
        net: AnyNet, rows: NDArray[np.int64], generator: torch.Generator, at: Moment
    ) -> Tensor:
        if batches is None:
            batch = batching.pad(tokens, rows, params.max_tokens, device)
        else:
            batch = batches(rows, device)
        targets = batching.dense_targets(Y, rows, device)
        mixture, tailmix = mixer.at(len(rows), at, device)
        with autocast(device):
            if columns is None or not isinstance(net, AttentionNet):
                return net.backward(batch, targets, weight, generator, mixture, tailmix)
            return net.backward_columns(
                net.encode(batch, generator),
                targets,
                columns(rows, at),
                weight,
                generator,
                batch,
                tailmix,
            )

    Trainer(
        net,
        params,
        batching.used_lengths(tokens, params.max_tokens),
        backward,
        evaluate,
        device=device,
        inputs=inputs or {},
        name=name,
        log=log,
        checkpoint=checkpoint,
    ).run()
    net.eval()


def validation_sample(
    tokens: Ragged, Y: sp.csr_matrix, params: AnyParams
) -> tuple[Ragged, sp.csr_matrix]:
    """At most ``valid_texts`` random texts: the first ones of a file are seldom typical."""
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

    def __init__(self, params: AnyParams, Y: sp.csr_matrix, rarity: NDArray) -> None:
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


def build_net(params: AnyParams, n_labels: int, vocabulary_size: int, dim: int) -> WordNet:
    """The untrained network of ``params``; torch's global random numbers stay as they are."""
    with torch.random.fork_rng(devices=[]):
        return _net(params, n_labels, vocabulary_size, dim)


def _net(params: AnyParams, n_labels: int, vocabulary_size: int, dim: int) -> WordNet:
    if isinstance(params, AttentionXmlParams):
        head = params.tree == "flat" and params.candidates > 0
        return AttentionNet(params, n_labels, vocabulary_size, dim, head)
    if isinstance(params, XmlCnnParams):
        return XmlCnnNet(params, n_labels, vocabulary_size, dim)
    if isinstance(params, BilstmParams):
        return BilstmNet(params, n_labels, vocabulary_size, dim)
    raise TypeError(f"{params.model} reads texts, not tokens")


def start_weights(
    net: WordNet, params: AnyParams, tokens: Ragged, Y: sp.csr_matrix, vectors: NDArray | None
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


def rank(columns: Tensor, logits: Tensor, k: int) -> TopK:
    """The best k of scored labels (B, m), ties to the smaller label."""
    if logits.shape[1] > 4 * k:  # narrow first: sorting all labels twice is the slow part
        # A stable sort keeps the smaller label first among equal logits.
        order = logits.sort(dim=1, descending=True, stable=True).indices[:, : 2 * k]
        columns, logits = columns.gather(1, order), logits.gather(1, order)
    scores = torch.sigmoid(logits.float())
    return best_first(columns.cpu().numpy(), scores.cpu().numpy(), k)
