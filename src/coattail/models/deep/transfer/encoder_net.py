"""The network of HTTN: words, a BiLSTM, attention over time, a vector of unit length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coattail.arrays import Ragged
from coattail.models.deep.nets.lstm_layer import Lstm
from coattail.models.deep.transfer.transfer_params import EncoderParams

# Texts are sorted by length within so many batches drawn at random.
POOL = 20


@dataclass(frozen=True)
class Texts:
    """A padded batch: ``ids`` (B, T), ``lengths`` (B,) at least 1, ``rows`` their numbers."""

    rows: NDArray[np.int64]
    ids: Tensor
    lengths: Tensor


def batches(
    tokens: Ragged, max_tokens: int, size: int, device: str, rng: np.random.Generator | None
) -> list[Texts]:
    """All texts in batches of like length; in random order if there is a generator."""
    lengths = np.minimum(tokens.lengths, max_tokens)
    if rng is None:
        order = np.argsort(lengths, kind="stable")
        parts = [order[i : i + size] for i in range(0, len(order), size)]
    else:
        order, parts = rng.permutation(tokens.n), []
        for start in range(0, len(order), size * POOL):
            pool = order[start : start + size * POOL]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            parts += [pool[i : i + size] for i in range(0, len(pool), size)]
        parts = [parts[i] for i in rng.permutation(len(parts))]
    return [pad(tokens, rows, lengths[rows], device) for rows in parts]


def pad(tokens: Ragged, rows: NDArray, lengths: NDArray, device: str) -> Texts:
    """Some texts, cut to their lengths, as one batch."""
    width = max(int(lengths.max(initial=1)), 1)
    place = np.arange(width)
    there = place < lengths[:, None]
    source = np.where(there, tokens.indptr[rows][:, None] + place, 0)
    values = np.asarray(tokens.values) if len(tokens.values) else np.zeros(1, np.int32)
    ids = np.where(there, values[source], 0).astype(np.int64)
    # An empty text is one padding word, so that attention has something to look at.
    long = torch.from_numpy(np.maximum(lengths, 1).astype(np.int64))
    return Texts(rows, torch.from_numpy(ids).to(device), long.to(device))


class HttnNet(nn.Module):
    """Texts to vectors (B, d): of unit length, then times a learned scale."""

    def __init__(self, params: EncoderParams, words: Tensor) -> None:
        super().__init__()
        self.vocabulary_size, self.word_dim = words.shape
        self.dropout = params.dropout
        # Building layers draws from torch's global generator: leave that as it was.
        with torch.random.fork_rng(devices=[]):
            self.words = nn.Embedding.from_pretrained(words, freeze=False, padding_idx=0)
            # Two one-way LSTMs: the backward one reads each text from its own last word, so that
            # padding never enters a state and a text's vector does not depend on its batch.
            self.forth = Lstm(self.word_dim, params.hidden)
            self.back = Lstm(self.word_dim, params.hidden)
            self.look = nn.Linear(2 * params.hidden, 1)
            self.project = nn.Linear(2 * params.hidden, params.dim)
            self.scale = nn.Parameter(torch.tensor(params.scale))
            # Without it all texts must lean against all rows for labels to be rare.
            self.offset = nn.Parameter(torch.tensor(0.0), requires_grad=params.offset)
        self._initialise(torch.Generator().manual_seed(params.seed))

    def below(self) -> list[nn.Parameter]:
        """Parameters of word vectors and LSTMs."""
        layers = (self.words, self.forth, self.back)
        return [p for layer in layers for p in layer.parameters()]

    def above(self) -> list[nn.Parameter]:
        own = [self.scale, self.offset]
        return [*self.look.parameters(), *self.project.parameters(), *own]

    def forward(self, texts: Texts, generator: torch.Generator | None = None) -> Tensor:
        """Scaled vectors (B, d)."""
        scaled: Tensor = self.unit_vectors(texts, generator) * self.scale
        return scaled

    def logits(
        self, texts: Texts, rows: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Of classifier rows (m, d): (B, m)."""
        return self.forward(texts, generator) @ rows.T + self.offset

    def unit_vectors(self, texts: Texts, generator: torch.Generator | None = None) -> Tensor:
        return attend(self.states(texts, generator), texts.lengths, self.look, self.project)

    def states(self, texts: Texts, generator: torch.Generator | None = None) -> Tensor:
        """What the two LSTMs say at every word, (B, T, 2 hidden)."""
        x = self._drop(self.words(texts.ids), generator)  # (B, T, words)
        back = _reversed(texts)  # (B, T)
        forth = self.forth(x)
        reverse = self.back(_take(x, back))
        return torch.cat([forth, _take(reverse, back)], dim=2)

    def _drop(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Drop entries of word vectors, the same ones throughout a text; training only."""
        if not self.training or not self.dropout or generator is None:
            return x
        keep = torch.rand(x.shape[0], 1, x.shape[2], generator=generator) >= self.dropout
        return x * (keep.to(x.device) / (1 - self.dropout))

    def _initialise(self, generator: torch.Generator) -> None:
        for layer in (self.forth, self.back, self.look, self.project):
            fill(layer, generator)


def attend(states: Tensor, lengths: Tensor, look: nn.Linear, project: nn.Linear) -> Tensor:
    """Unit vectors (B, d) of states (B, T, 2 hidden): attention over time, then a projection."""
    time = torch.arange(states.shape[1], device=states.device)
    score = look(states).squeeze(2)
    score = score.masked_fill(time >= lengths[:, None], -torch.inf)
    pooled = torch.einsum("bt,bth->bh", score.softmax(dim=1), states)
    return nn.functional.normalize(project(pooled), dim=1)


@torch.no_grad()
def fill(layer: Lstm | nn.Linear, generator: torch.Generator) -> None:
    """Uniform weights within 1/sqrt(inputs), from a generator of our own."""
    size = layer.hidden_size if isinstance(layer, Lstm) else layer.in_features
    for parameter in layer.parameters():
        noise = torch.rand(parameter.shape, generator=generator)
        parameter.copy_((noise * 2 - 1) / size**0.5)


def _reversed(texts: Texts) -> Tensor:
    """Places (B, T) that read every text backwards and leave its padding where it is."""
    time = torch.arange(texts.ids.shape[1], device=texts.ids.device)
    last = texts.lengths[:, None] - 1
    return torch.where(time <= last, last - time, time)


def _take(x: Tensor, places: Tensor) -> Tensor:
    return x.gather(1, places[:, :, None].expand(-1, -1, x.shape[2]))
