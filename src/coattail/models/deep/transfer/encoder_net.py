"""The network of HTTN: words, a BiLSTM, attention over time, a vector of unit length."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from coattail.data.text import PAD
from coattail.models.deep.batching import Batch
from coattail.models.deep.nets.layers import reorder, reversal
from coattail.models.deep.nets.lstm_layer import Lstm
from coattail.models.deep.transfer.transfer_params import EncoderParams


class HttnNet(nn.Module):
    """Texts to vectors (B, d): of unit length, then times a learned scale."""

    def __init__(self, params: EncoderParams, words: Tensor) -> None:
        super().__init__()
        self.vocabulary_size, self.word_dim = words.shape
        self.dropout = params.dropout
        self.in_threads = params.pieces > 1  # one piece: operations are split between threads
        # Building layers draws from torch's global generator: leave that as it was.
        with torch.random.fork_rng(devices=[]):
            self.words = nn.Embedding.from_pretrained(words, freeze=False, padding_idx=PAD)
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

    def forward(self, texts: Batch, generator: torch.Generator | None = None) -> Tensor:
        """Scaled vectors (B, d)."""
        scaled: Tensor = self.unit_vectors(texts, generator) * self.scale
        return scaled

    def logits(
        self, texts: Batch, rows: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Of classifier rows (m, d): (B, m)."""
        return self.forward(texts, generator) @ rows.T + self.offset

    def unit_vectors(self, texts: Batch, generator: torch.Generator | None = None) -> Tensor:
        return attend(self.states(texts, generator), texts.lengths, self.look, self.project)

    def states(self, texts: Batch, generator: torch.Generator | None = None) -> Tensor:
        """What the two LSTMs say at every word, (B, T, 2 hidden)."""
        x = self._drop(self.words(texts.ids), generator)  # (B, T, words)
        turn = reversal(texts.lengths, texts.ids.shape[1])  # (B, T)
        forth = self.forth(x)
        reverse = self.back(reorder(x, turn))
        return torch.cat([forth, reorder(reverse, turn)], dim=2)

    def _drop(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Drop entries of word vectors, the same ones throughout a text; no generator, none."""
        if not self.dropout or generator is None:
            return x
        shape = (x.shape[0], 1, x.shape[2])
        keep = torch.rand(shape, generator=generator, device=generator.device) >= self.dropout
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
