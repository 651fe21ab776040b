"""The contenders of deep.py that are always there: ours, and the same network written plainly."""

from __future__ import annotations

import argparse
import time
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from deep import (
    BATCH,
    DIM,
    FC,
    HIDDEN,
    LISTED,
    LR,
    MAX_TOKENS,
    PREDICT_BATCH,
    VOCABULARY,
    corpus,
)
from torch import nn

from coattail.arrays import Ragged, best_first
from coattail.config import parse as check
from coattail.models.deep import batching
from coattail.models.deep.deep_models import build
from coattail.models.deep.deep_params import DeepParams
from coattail.models.deep.fit_data import FitData, RunContext
from coattail.models.deep.nets.step import Step
from coattail.models.deep.training.fitting import build_net, start_weights


def drawn(arguments: argparse.Namespace) -> tuple[Ragged, sp.csr_matrix, np.ndarray]:
    """Token ids, labels and word vectors of all texts."""
    tokens, labels, vectors = corpus(arguments)
    Y = sp.csr_matrix(labels, shape=(arguments.texts, arguments.labels))
    Y.sort_indices()
    return Ragged(*tokens), Y, vectors


class Ours:
    """AttentionXML of this library, trained and ranking as the pipeline does it."""

    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.tokens, self.Y, self.vectors = drawn(arguments)
        fixed = {"hidden": HIDDEN, "fc": [FC], "batch": BATCH, "lr": LR, "epochs": 1}
        fixed |= {"max_tokens": MAX_TOKENS, "clip_queue": 0, "swa_from": -1}
        fixed |= {"predict_batch": PREDICT_BATCH, "model": "attentionxml"}
        self.params = check({**fixed, **self.settings}, DeepParams, "benchmark")
        self.model: Any = None

    def untrained(self) -> Any:
        net = build_net(self.params, self.arguments.labels, VOCABULARY, DIM)
        start_weights(net, self.params, self.tokens, self.Y, self.vectors)
        return net

    def first_loss(self) -> float:
        rows = np.arange(BATCH)
        batch = batching.pad(self.tokens, rows, MAX_TOKENS, "cpu")
        targets = batching.dense_targets(self.Y, rows, "cpu")
        generator = torch.Generator().manual_seed(0)
        return float(self.untrained().backward(batch, Step(targets, None, generator)))

    def train(self) -> float:
        rates: list[float] = []
        data = FitData(self.tokens, self.Y, vocabulary_size=VOCABULARY, vectors=self.vectors)
        log = lambda numbers, epoch: rates.append(numbers["texts_per_second"])  # noqa: E731
        context = RunContext(threads=self.arguments.threads, log=log)
        self.model = build(self.params).fit(data, context)
        return rates[0]

    def predict(self) -> float:
        start = time.perf_counter()
        self.model.predict(self.tokens, LISTED)
        return self.tokens.n / (time.perf_counter() - start)


class Same(Ours):
    """Ours with the mathematics of the plain network."""

    settings: ClassVar[dict[str, Any]] = {
        "candidates": 0,
        "label_outputs": False,
        "dropout": 0.0,
        "embedding_dropout": 0.0,
    }


class PlainNet(nn.Module):
    """The network of the paper in the fewest lines."""

    def __init__(self, n_labels: int) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, DIM, padding_idx=0, sparse=True)
        self.lstm = nn.LSTM(DIM, HIDDEN, batch_first=True, bidirectional=True)
        self.start = nn.Parameter(torch.zeros(2, 2, HIDDEN))
        self.queries = nn.Linear(2 * HIDDEN, n_labels, bias=False)
        self.fc, self.out = nn.Linear(2 * HIDDEN, FC), nn.Linear(FC, 1)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.words(ids), lengths, batch_first=True, enforce_sorted=False
        )
        h, c = (self.start[:, i].unsqueeze(1).repeat(1, len(ids), 1) for i in (0, 1))
        states = nn.utils.rnn.pad_packed_sequence(
            self.lstm(packed, (h, c))[0], batch_first=True, total_length=ids.shape[1]
        )[0]
        scores = self.queries(states).transpose(1, 2)  # (B, L, T)
        padding = torch.arange(ids.shape[1]) >= lengths.unsqueeze(1)
        weights = scores.masked_fill(padding.unsqueeze(1), float("-inf")).softmax(dim=2)
        return self.out(torch.relu(self.fc(weights @ states))).squeeze(2)


class Plain:
    """A loop over batches in random order, and torch's own optimisers."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        torch.set_num_threads(arguments.threads)
        self.tokens, self.Y, _ = drawn(arguments)
        self.net = PlainNet(arguments.labels)
        self.copy_weights(Same(arguments).untrained())
        rest = [p for name, p in self.net.named_parameters() if name != "words.weight"]
        self.optimisers = [
            torch.optim.SparseAdam([self.net.words.weight], lr=LR),
            torch.optim.Adam(rest, lr=LR),
        ]
        self.rng = np.random.default_rng(1)

    def copy_weights(self, ours: Any) -> None:
        """Start where ours starts."""
        pairs = {"ahead": "", "back": "_reverse"}
        with torch.no_grad():
            self.net.words.weight.copy_(ours.words.table.weight)
            for name, ending in pairs.items():
                for part, tensor in getattr(ours.lstm, name).named_parameters():
                    getattr(self.net.lstm, part + ending).copy_(tensor)
            self.net.start.copy_(ours.lstm.start)
            self.net.queries.weight.copy_(ours.queries)
            for mine, layer in zip((self.net.fc, self.net.out), ours.fc.layers, strict=True):
                mine.weight.copy_(layer.weight)
                mine.bias.copy_(layer.bias)

    def batch(self, rows: Any) -> tuple[torch.Tensor, torch.Tensor]:
        texts = [torch.from_numpy(self.tokens.row(int(r))[:MAX_TOKENS].copy()) for r in rows]
        lengths = torch.tensor([len(text) for text in texts])
        return nn.utils.rnn.pad_sequence(texts, batch_first=True).long(), lengths

    def loss(self, rows: Any) -> torch.Tensor:
        truth = torch.from_numpy(self.Y[rows].toarray())
        logits = self.net(*self.batch(rows))
        return nn.functional.binary_cross_entropy_with_logits(logits, truth)

    def first_loss(self) -> float:
        return float(self.loss(np.arange(BATCH)).detach())

    def train(self) -> float:
        start = time.perf_counter()
        for rows in np.array_split(self.rng.permutation(self.tokens.n), -(-self.tokens.n // BATCH)):
            for optimiser in self.optimisers:
                optimiser.zero_grad()
            self.loss(rows).backward()
            for optimiser in self.optimisers:
                optimiser.step()
        return self.tokens.n / (time.perf_counter() - start)

    @torch.no_grad()
    def predict(self) -> float:
        start = time.perf_counter()
        for first in range(0, self.tokens.n, PREDICT_BATCH):
            rows = np.arange(first, min(first + PREDICT_BATCH, self.tokens.n))
            scores = torch.sigmoid(self.net(*self.batch(rows)))
            best, labels = scores.topk(LISTED)
            best_first(labels.numpy(), best.numpy(), LISTED)
        return self.tokens.n / (time.perf_counter() - start)


CONTENDERS = {"plain": Plain, "same": Same, "candidates": Ours}
