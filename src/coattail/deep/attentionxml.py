"""AttentionXML's network: forward and backward over labels in blocks or over candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from coattail.deep.data import Batch
from coattail.deep.loss import cross_entropy
from coattail.deep.mix import Pairs, TailMixer, soft_targets
from coattail.deep.nets import (
    BiLstm,
    CheapHead,
    Layers,
    Mixture,
    Words,
    attention,
    contexts,
)
from coattail.deep.params import AttentionXmlParams


@dataclass(frozen=True)
class Encoded:
    """A batch after the encoder."""

    states: Tensor  # (B, S, d)
    mask: Tensor  # bool (B, S)
    head: Tensor | None  # (B, L) logits of the cheap head


class AttentionNet(nn.Module):
    """Encoder, a query per label, shared output layers, and with candidates a cheap head."""

    def __init__(
        self,
        params: AttentionXmlParams,
        n_labels: int,
        vocabulary_size: int,
        dim: int,
        with_head: bool,
    ) -> None:
        super().__init__()
        width = 2 * params.hidden
        self.params, self.n_labels = params, n_labels
        self.words = Words(vocabulary_size, dim, params.train_embeddings, params.embedding_dropout)
        self.lstm = BiLstm(dim, params.hidden, params.dropout, params.words_per_step)
        self.queries = nn.Parameter(torch.empty(n_labels, width))
        self.outputs = nn.Parameter(torch.empty(n_labels, width)) if params.label_outputs else None
        self.fc = Layers([width, *params.fc, 1])
        self.head = (
            CheapHead(params.head_dim, width, n_labels, vocabulary_size) if with_head else None
        )

    # --- forward

    def encode(
        self, batch: Batch, generator: torch.Generator | None, mixture: Mixture | None = None
    ) -> Encoded:
        words, lengths = self.words(batch.ids, generator), batch.lengths
        read, read_lengths = words, lengths
        if mixture is not None and mixture.place == "word":
            read = mixture.blend(words)
            read_lengths = torch.maximum(lengths, lengths[mixture.partner])
        states, mask = self.lstm(read, read_lengths, generator)
        if mixture is not None and mixture.place == "hidden":
            states = mixture.blend(states.masked_fill(~mask.unsqueeze(2), 0.0))
            mask = mask | mask[mixture.partner]
        head = None
        if self.head is not None:
            bag = self.head.bag(batch.ids)
            bag = bag if mixture is None else mixture.blend(bag)
            head = self.head(bag, states, mask)
        return Encoded(states, mask, head)

    def logits(self, states: Tensor, mask: Tensor, columns: Tensor) -> Tensor:
        """Logits (B, C) of labels ``columns``, int64 (C,) for all texts or (B, C) per text."""
        queries = nn.functional.embedding(columns, self.queries)
        return self.decide(contexts(states, mask, queries), columns)

    def decide(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Logits (..., C) of context vectors (..., C, d) of ``labels`` (C,) or (..., C)."""
        out = self.fc(vectors).squeeze(-1)
        if self.outputs is not None:
            out = out + (vectors * nn.functional.embedding(labels, self.outputs)).sum(dim=-1)
        return out

    def blocks(self, columns: Tensor | None, device: torch.device) -> Iterator[Tensor]:
        """The labels to score, at most label_block at a time: (C,) slices or (B, C) pieces."""
        size = self.params.label_block
        if columns is None:
            columns = torch.arange(self.n_labels, device=device)
        yield from columns.split(size, dim=-1)

    # --- training

    def backward(
        self,
        batch: Batch,
        targets: Tensor,
        weights: Tensor | None,
        generator: torch.Generator,
        mixture: Mixture | None = None,
        tailmix: TailMixer | None = None,
    ) -> Tensor:
        """Add the gradients of one batch; the mean loss. ``targets`` float (B, L)."""
        encoded = self.encode(batch, generator, mixture)
        targets = targets if mixture is None else mixture.blend(targets)
        columns = self._candidates(encoded.head, targets, generator)
        return self.backward_columns(encoded, targets, columns, weights, generator, batch, tailmix)

    def backward_columns(
        self,
        encoded: Encoded,
        targets: Tensor,
        columns: Tensor | None,
        weights: Tensor | None,
        generator: torch.Generator,
        batch: Batch,
        tailmix: TailMixer | None = None,
    ) -> Tensor:
        """Gradients block by block: attention's memory is that of one block, not of all labels."""
        count = targets.shape[0] * (self.n_labels if columns is None else columns.shape[1])
        states = encoded.states.detach().requires_grad_()
        skip, total = None, torch.zeros((), device=states.device)
        if tailmix is not None:
            pairs = self._pairs(tailmix, states.detach(), encoded.mask, columns, batch, generator)
            if len(pairs.row):
                targets = soft_targets(targets, pairs)
                skip = torch.zeros_like(targets, dtype=torch.bool)
                skip[pairs.row, pairs.target] = True
                mixed = self._mixed_logits(states, encoded.mask, pairs)
                w = None if weights is None else weights[pairs.target]
                total = total + _accumulate(cross_entropy(mixed, pairs.share, w) / count)
        for block in self.blocks(columns, states.device):
            logits = self.logits(states, encoded.mask, block)
            loss = cross_entropy(
                logits,
                pick(targets, block),
                None if weights is None else weights[block],
                None if skip is None else pick(skip, block),
            )
            total = total + _accumulate(loss / count)
        if encoded.head is None:
            encoded.states.backward(states.grad)
        else:
            loss = cross_entropy(encoded.head, targets, weights) / count
            torch.autograd.backward([encoded.states, loss], [states.grad, None])
        return total

    def _candidates(
        self, head: Tensor | None, targets: Tensor, generator: torch.Generator
    ) -> Tensor | None:
        if head is None or self.params.candidates >= self.n_labels:
            return None
        noise = int(self.params.candidates * self.params.noise)
        return candidates(head.detach(), targets, self.params.candidates, noise, generator)

    def _pairs(
        self,
        tailmix: TailMixer,
        states: Tensor,
        mask: Tensor,
        columns: Tensor | None,
        batch: Batch,
        generator: torch.Generator,
    ) -> Pairs:
        row, target = tailmix.draw(batch.rows, states.device)
        with torch.no_grad():
            own = self._context_of(states, mask, row, target.unsqueeze(1)).squeeze(1)
            pieces = (
                (
                    block.expand(len(batch.rows), -1).index_select(0, row),
                    contexts(states, mask, self.queries[block]).index_select(0, row),
                )
                for block in self.blocks(columns, states.device)
            )
            return tailmix.pair(row, target, own, pieces, generator)

    def _context_of(self, states: Tensor, mask: Tensor, row: Tensor, labels: Tensor) -> Tensor:
        """Context vectors (P, c, d) of ``labels`` (P, c) in the texts ``row`` (P,)."""
        queries = nn.functional.embedding(labels, self.queries)
        return contexts(states.index_select(0, row), mask.index_select(0, row), queries)

    def _mixed_logits(self, states: Tensor, mask: Tensor, pairs: Pairs) -> Tensor:
        both = torch.stack([pairs.target, pairs.partner], dim=1)  # (P, 2)
        share = torch.stack([pairs.share, 1 - pairs.share], dim=1)
        vectors = self._context_of(states, mask, pairs.row, both)
        return self.decide((share.unsqueeze(2) * vectors).sum(dim=1), pairs.target)

    # --- prediction

    @torch.no_grad()
    def score(self, batch: Batch, k: int) -> tuple[Tensor, Tensor]:
        """Labels (B, m) to rank and their logits: all of them, or a shortlist of the cheap head."""
        encoded = self.encode(batch, None)
        columns = None
        if encoded.head is not None and max(self.params.candidates, k) < self.n_labels:
            shortlist = max(self.params.candidates, k)
            order = encoded.head.sort(dim=1, descending=True, stable=True).indices
            columns = order[:, :shortlist]
        pieces = [
            self._blend(self.logits(encoded.states, encoded.mask, block), encoded.head, block)
            for block in self.blocks(columns, encoded.states.device)
        ]
        if columns is None:
            columns = torch.arange(self.n_labels, device=encoded.states.device)
            columns = columns.expand(len(batch.rows), -1)
        return columns, torch.cat(pieces, dim=1)

    def _blend(self, logits: Tensor, head: Tensor | None, block: Tensor) -> Tensor:
        """A weighted mean of attention's and the cheap head's logits.

        The head takes no part in training attention: it has seen the training texts and leaves
        little to learn there, but is wrong elsewhere.
        """
        if head is None:
            return logits
        share = self.params.head_share
        return (1 - share) * logits + share * pick(head, block)

    @torch.no_grad()
    def weigh(self, batch: Batch, labels: Tensor) -> Tensor:
        """Attention of every label on the words of every text: (B, labels, T)."""
        encoded = self.encode(batch, None)
        weights = attention(encoded.states, encoded.mask, self.queries[labels])
        group = self.params.words_per_step
        return weights.repeat_interleave(group, dim=2)[:, :, : batch.ids.shape[1]] / group


def candidates(
    head: Tensor, targets: Tensor, count: int, noise: int, generator: torch.Generator
) -> Tensor:
    """Distinct labels (B, count): true ones, then the best guesses of the head, then noise."""
    wanted = torch.where(targets > 0, float("inf"), head)
    best = wanted.topk(count - noise, dim=1).indices
    lottery = torch.rand(head.shape, generator=generator, device=head.device)
    lottery.scatter_(1, best, -1.0)
    return torch.cat([best, lottery.topk(noise, dim=1).indices], dim=1)


def pick(matrix: Tensor, columns: Tensor) -> Tensor:
    """``matrix`` (B, L) at ``columns`` (C,) or (B, C)."""
    return matrix.gather(1, columns) if columns.dim() == 2 else matrix[:, columns]


def _accumulate(loss: Tensor) -> Tensor:
    loss.backward()
    return loss.detach()
