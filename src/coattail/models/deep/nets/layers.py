"""The networks' parts: encoder, label attention, cheap head, convolutions; tensors in and out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from coattail.data.text import PAD
from coattail.models.deep.batching import Batch
from coattail.models.deep.nets.lstm_layer import Lstm


@dataclass(frozen=True)
class Mixture:
    """Two texts in one: row i becomes share * i + (1 - share) * partner[i]."""

    partner: Tensor  # int64 (B,)
    share: Tensor  # float (B,)
    place: str  # "word", "hidden", "layer" (of a transformer), "span" (of words), or "labels"

    def blend(self, x: Tensor) -> Tensor:
        share = self.share.view(-1, *([1] * (x.dim() - 1)))
        return share * x + (1 - share) * x[self.partner]

    def blend_states(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """States (B, S, d) without what padding holds, and where either text has some."""
        blended = self.blend(states.masked_fill(~mask.unsqueeze(2), 0.0))
        return blended, mask | mask[self.partner]


@dataclass(frozen=True)
class Reading:
    """How a network reads a batch: as it is, or with dropout, mixed, from other word vectors."""

    generator: torch.Generator | None = None  # of dropout; None: no dropout
    mixture: Mixture | None = None
    words: Tensor | None = None  # (B, T, e) in place of the batch's word vectors

    def mixes(self, place: str) -> bool:
        return self.mixture is not None and self.mixture.place == place


PLAIN = Reading()


def dropout(x: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Zero whole features of a text (the same ones at every word); no generator, no dropout.

    One mask per text instead of one per word is kinder to memory bandwidth.
    """
    if generator is None or rate == 0:
        return x
    shape = (x.shape[0], *([1] * (x.dim() - 2)), x.shape[-1])
    keep = torch.rand(shape, generator=generator, device=x.device) >= rate
    return x * (keep.to(x.dtype) / (1 - rate))


def word_mask(lengths: Tensor, width: int) -> Tensor:
    """True at real words: bool (B, width)."""
    return torch.arange(width, device=lengths.device) < lengths.unsqueeze(1)


def reversal(lengths: Tensor, width: int) -> Tensor:
    """Positions that turn every text round within its own length; padding stays: (B, width)."""
    place = torch.arange(width, device=lengths.device).expand(len(lengths), width)
    mirrored = lengths.unsqueeze(1) - 1 - place
    return torch.where(mirrored >= 0, mirrored, place)


class Words(nn.Module):
    """Word vectors with sparse gradients; padding is the zero vector."""

    def __init__(self, size: int, dim: int, trained: bool, rate: float) -> None:
        super().__init__()
        self.table = nn.Embedding(size, dim, padding_idx=PAD, sparse=True)
        self.table.weight.requires_grad_(trained)
        self.rate = rate

    def fill(self, vectors: NDArray) -> None:
        with torch.no_grad():
            # A copy, for files mapped into memory cannot be written to and torch warns.
            self.table.weight.copy_(torch.from_numpy(np.array(vectors, np.float32)))
            self.table.weight[PAD] = 0

    def forward(self, ids: Tensor, generator: torch.Generator | None) -> Tensor:
        return dropout(self.table(ids), self.rate, generator)  # (B, T, dim)

    def read(self, batch: Batch, reading: Reading) -> tuple[Tensor, Tensor]:
        """Word vectors (B, T, dim) and lengths (B,); a mixture is as long as its longer text."""
        words = self(batch.ids, reading.generator) if reading.words is None else reading.words
        if reading.mixture is None or not reading.mixes("word"):
            return words, batch.lengths
        partner = batch.lengths[reading.mixture.partner]
        return reading.mixture.blend(words), torch.maximum(batch.lengths, partner)


class BiLstm(nn.Module):
    """One LSTM layer per direction over padded texts, with learnable start states.

    Padding stands at the end. The backward direction reads each text turned round within its own
    length, so a text gives the same states alone and in any batch, without packed sequences (which
    are several times slower on a CPU).
    """

    def __init__(self, dim: int, hidden: int, rate: float, words_per_step: int = 1) -> None:
        super().__init__()
        self.ahead = Lstm(dim * words_per_step, hidden)
        self.back = Lstm(dim * words_per_step, hidden)
        self.start = nn.Parameter(torch.zeros(2, 2, hidden))  # direction, (h, c), unit
        self.rate, self.words_per_step = rate, words_per_step

    def forward(
        self, x: Tensor, lengths: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """States (B, S, 2 hidden) of the S steps and the mask of real steps (B, S)."""
        x, lengths = self._steps(x, lengths)
        turn = reversal(lengths, x.shape[1])
        ahead = self._run(self.ahead, x, self.start[0])
        back = self._run(self.back, reorder(x, turn), self.start[1])
        states = torch.cat([ahead, reorder(back, turn)], dim=2)
        return dropout(states, self.rate, generator), word_mask(lengths, x.shape[1])

    def _steps(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        group = self.words_per_step
        if group == 1:
            return x, lengths
        x = F.pad(x, (0, 0, 0, -x.shape[1] % group))
        steps = x.reshape(x.shape[0], x.shape[1] // group, group * x.shape[2])
        return steps, (lengths + group - 1) // group

    @staticmethod
    def _run(lstm: Lstm, x: Tensor, start: Tensor) -> Tensor:
        h, c = (s.expand(x.shape[0], -1) for s in start)
        # Not in bfloat16: a state is added to hundreds of times, and CPUs lack the operation.
        with torch.autocast(x.device.type, enabled=False):
            return lstm(x.float(), (h, c))


def reorder(x: Tensor, places: Tensor) -> Tensor:
    """The words of x (B, T, d) at ``places`` (B, T)."""
    return x.gather(1, places.unsqueeze(2).expand(-1, -1, x.shape[2]))


def attention(states: Tensor, mask: Tensor, queries: Tensor) -> Tensor:
    """Weights of the words for every query: (B, C, S), each row sums to one over real words.

    ``queries`` are (C, d), the same for all texts, or (B, C, d).
    """
    scores = torch.matmul(queries, states.transpose(1, 2))
    return scores.masked_fill(~mask.unsqueeze(1), float("-inf")).softmax(dim=2)


def contexts(states: Tensor, mask: Tensor, queries: Tensor) -> Tensor:
    """What every query reads: (B, C, d)."""
    return torch.matmul(attention(states, mask, queries), states)


class Layers(nn.Module):
    """Fully connected layers with ReLU between them, Xavier-uniform weights."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        return self.after_first(self.layers[0](x))

    def after_first(self, x: Tensor) -> Tensor:
        """The result from that of the first layer."""
        for layer in self.layers[1:]:
            x = layer(F.relu(x))
        return x


class CheapHead(nn.Module):
    """Scores all labels from the words of a text and its pooled states: picks candidates.

    The words are a bag: (1 + ln count) times rarity, scaled to length one, so that a word's row of
    the table counts no less in a long text. Dropout keeps the bag from learning texts by heart.
    """

    def __init__(
        self, dim: int, width: int, n_labels: int, vocabulary_size: int, rate: float
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary_size, dim, padding_idx=PAD, sparse=True)
        self.register_buffer("rarity", torch.ones(vocabulary_size))
        self.words = nn.Linear(dim, n_labels)
        self.states = nn.Linear(2 * width, n_labels, bias=False)
        self.rate = rate

    @torch.no_grad()
    def fill(self, directions: NDArray, rarity: NDArray, log_odds: NDArray) -> None:
        """Start: words in their ``directions`` (V, at most dim), labels as often as they occur."""
        self.table.weight.zero_()[:, : directions.shape[1]] = torch.from_numpy(directions)
        self.table.weight[PAD] = 0
        self.rarity.copy_(torch.from_numpy(rarity))
        self.words.weight.zero_()
        self.words.bias.copy_(torch.from_numpy(log_odds))
        self.states.weight.zero_()

    def bag(self, batch: Batch, generator: torch.Generator | None) -> Tensor:
        """What the words of every text say, those after the cut included: (B, dim)."""
        text, place = (batch.ids != PAD).nonzero(as_tuple=True)
        words = torch.cat([batch.ids[text, place], batch.rest])
        key = torch.cat([text, batch.rest_of]) * len(self.rarity) + words
        key, count = key.unique(return_counts=True)  # sorted by text
        text, words = key // len(self.rarity), key % len(self.rarity)
        weight = (1 + count.log()) * self.rarity[words]
        square = torch.zeros(len(batch.ids), device=weight.device)
        weight = weight / square.index_add_(0, text, weight**2).sqrt().clamp_min(1e-6)[text]
        first = torch.searchsorted(text, torch.arange(len(batch.ids), device=text.device))
        bag = F.embedding_bag(
            words, self.table.weight, first, mode="sum", sparse=True, per_sample_weights=weight
        )
        return dropout(bag, self.rate, generator)

    def forward(self, bag: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        pooled = torch.cat([mean_pool(states, mask), max_pool(states, mask)], dim=1)
        return self.words(bag) + self.states(pooled)


def mean_pool(states: Tensor, mask: Tensor) -> Tensor:
    share = mask.to(states.dtype) / mask.sum(dim=1, keepdim=True)
    return torch.bmm(share.unsqueeze(1), states).squeeze(1)


def max_pool(states: Tensor, mask: Tensor) -> Tensor:
    return states.masked_fill(~mask.unsqueeze(2), float("-inf")).amax(dim=1)


class Convolution(nn.Conv1d):
    """torch's, as one product on a CPU: oneDNN's sums depend on the processor's caches."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, dim) -> (B, T - width + 1, filters)."""
        if x.device.type != "cpu":
            return super().forward(x.transpose(1, 2)).transpose(1, 2)
        width, filters = self.kernel_size[0], self.out_channels
        rows = self.weight.permute(2, 0, 1).flatten(0, 1)  # (width * filters, dim)
        parts = F.linear(x, rows).unflatten(2, (width, filters)).unbind(2)
        count = x.shape[1] - width + 1
        return sum(part[:, k : k + count] for k, part in enumerate(parts)) + self.bias


class Convolutions(nn.Module):
    """Feature maps of several widths, each cut into chunks whose maxima are kept."""

    def __init__(self, dim: int, filters: int, widths: list[int], pools: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(Convolution(dim, filters, width) for width in widths)
        self.pools = pools
        self.out_features = filters * len(widths) * pools

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Dynamic max-pooling over each text's own length: (B, out_features)."""
        maps = (conv(F.pad(x, (0, 0, 0, conv.kernel_size[0] - 1))) for conv in self.maps)
        return torch.cat([self._pool(m, lengths) for m in maps], dim=1)

    def _pool(self, maps: Tensor, lengths: Tensor) -> Tensor:
        """Chunk c of a text of n words covers [c n / p, (c + 1) n / p), at least one word."""
        maps = F.relu(maps)
        place = torch.arange(maps.shape[1], device=maps.device)
        chunks = []
        for chunk in range(self.pools):
            first = (lengths * chunk) // self.pools
            last = torch.maximum((lengths * (chunk + 1)) // self.pools, first + 1)
            inside = (place >= first.unsqueeze(1)) & (place < last.unsqueeze(1))
            chunks.append(maps.masked_fill(~inside.unsqueeze(2), 0.0).amax(dim=1))  # ReLU: >= 0
        return torch.cat(chunks, dim=1)


@torch.no_grad()
def initialise(net: nn.Module, generator: torch.Generator) -> None:
    """Fresh weights from one generator: Xavier for matrices, LSTM's usual uniform, zero biases.

    What lies under the name ``encoder`` is pre-trained and stays.
    """
    for name, parameter in sorted(net.named_parameters()):
        part = name.rsplit(".", 1)[-1]
        if name.startswith("encoder."):
            continue
        if "table" in name:
            parameter.normal_(0, 0.3, generator=generator)
            parameter[PAD] = 0
        elif part == "start" or part.startswith("bias"):
            parameter.zero_()
        elif part == "weight" and parameter.dim() == 1:  # scales of a normalisation
            parameter.fill_(1.0)
        elif part.startswith("weight_"):  # LSTM, gates stacked
            bound = parameter.shape[0] ** -0.5 * 2
            parameter.uniform_(-bound, bound, generator=generator)
        else:
            nn.init.xavier_uniform_(parameter, generator=generator)
