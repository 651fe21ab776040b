"""Label attention, forward and backward over labels in blocks or over candidates; AttentionXML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from coattail.models.deep.batching import Batch
from coattail.models.deep.deep_params import AttentionXmlParams, LarobertaParams
from coattail.models.deep.nets.layers import (
    PLAIN,
    BiLstm,
    CheapHead,
    Layers,
    Reading,
    Words,
    attention,
    contexts,
    word_mask,
)
from coattail.models.deep.nets.loss import cross_entropy
from coattail.models.deep.nets.span_mix import exchange_spans
from coattail.models.deep.nets.step import Step
from coattail.models.deep.nets.tail_mix import Pairs, TailMixer, soft_targets


@dataclass(frozen=True)
class Encoded:
    """A batch after the encoder."""

    states: Tensor  # (B, S, d)
    mask: Tensor  # bool (B, S)
    head: Tensor | None  # (B, L) logits of the cheap head


class LabelAttention(nn.Module):
    """Over some encoder: a query per label, shared layers, and with candidates a cheap head."""

    params: AttentionXmlParams | LarobertaParams
    n_labels: int

    def _add_labels(self, width: int, vocabulary_size: int, with_head: bool) -> None:
        """Add the layers over the encoder, whose states have ``width`` entries."""
        params, n_labels = self.params, self.n_labels
        self.queries = nn.Parameter(torch.empty(n_labels, width))
        self.outputs = nn.Parameter(torch.empty(n_labels, width)) if params.label_outputs else None
        self.fc = Layers([width, *params.fc, 1])
        self.head = (
            CheapHead(params.head_dim, width, n_labels, vocabulary_size, params.head_dropout)
            if with_head
            else None
        )

    # --- forward

    def embed(self, batch: Batch) -> Tensor:
        """The plain word vectors (B, T, e) that ``encode`` starts from."""
        raise NotImplementedError

    def encode(self, batch: Batch, reading: Reading = PLAIN) -> Encoded:
        """States of a batch, mixed if this is the place to mix, and what the cheap head says."""
        states, mask = self.states(batch, reading)
        mixture = reading.mixture
        if mixture is not None and reading.mixes("hidden"):
            states, mask = mixture.blend_states(states, mask)
        head = None
        if self.head is not None:
            bag = self.head.bag(batch, reading.generator)
            bag = bag if mixture is None else mixture.blend(bag)
            head = self.head(bag, states, mask)
        return Encoded(states, mask, head)

    def states(self, batch: Batch, reading: Reading) -> tuple[Tensor, Tensor]:
        """What the encoder says at every word, (B, S, d), and the mask of real words (B, S)."""
        raise NotImplementedError

    def logits(self, states: Tensor, mask: Tensor, columns: Tensor) -> Tensor:
        """Logits (B, C) of labels ``columns``, int64 (C,) for all texts or (B, C) per text."""
        queries = nn.functional.embedding(columns, self.queries)
        if self._first_layer_first(columns.shape[-1], states.shape[1]):
            return self._read_layer(attention(states, mask, queries), states, columns)
        return self.decide(contexts(states, mask, queries), columns)

    def _first_layer_first(self, n_labels: int, n_states: int) -> bool:
        """Whether it costs fewer products to apply the first shared layer to the states.

        Weights sum to one, so a layer of what a label reads is what it reads of the layer.
        """
        width, inner = self.queries.shape[1], self.fc.layers[0].out_features
        states_first = n_states * inner * (width + n_labels)
        if self.outputs is not None:
            states_first += n_labels * n_states * width
        return states_first < n_labels * width * (n_states + inner)

    def _read_layer(self, weights: Tensor, states: Tensor, labels: Tensor) -> Tensor:
        """``decide`` of the context vectors, which are never formed; weights (B, C, S)."""
        first = self.fc.layers[0]
        inner = torch.matmul(weights, nn.functional.linear(states, first.weight)) + first.bias
        out = self.fc.after_first(inner).squeeze(-1)
        if self.outputs is not None:
            outputs = nn.functional.embedding(labels, self.outputs)
            spoken = torch.matmul(outputs, states.transpose(1, 2))  # (B, C, S)
            out = out + (weights * spoken).sum(dim=2)
        return out

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

    def backward(self, batch: Batch, step: Step) -> Tensor:
        """Add the gradients of one batch; the mean loss."""
        mixture = step.mixture
        if mixture is not None and mixture.place == "span":
            saliency, share = self._saliency(batch, step), self.params.mix_span
            changeable = self._changeable(batch)
            batch, labels = exchange_spans(batch, changeable, saliency, mixture.partner, share)
            step = replace(step, targets=labels.blend(step.targets), mixture=None)
        encoded = self.encode(batch, Reading(step.generator, step.mixture))
        if step.mixture is not None:
            step = replace(step, targets=step.mixture.blend(step.targets))
        columns = self._candidates(encoded.head, step.targets, step.generator)
        return self.backward_columns(batch, encoded, columns, step)

    def backward_columns(
        self, batch: Batch, encoded: Encoded, columns: Tensor | None, step: Step
    ) -> Tensor:
        """Gradients for the labels ``columns`` (B, C), None: all, whose targets are mixed already.

        They come block by block: attention's memory is that of one block, not of all labels.
        """
        targets, weights, tailmix = step.targets, step.weights, step.tailmix
        count = targets.shape[0] * (self.n_labels if columns is None else columns.shape[1])
        learns = encoded.states.requires_grad  # not over a frozen encoder
        states = encoded.states.detach().requires_grad_(learns)
        true, skip, total = targets, None, torch.zeros((), device=states.device)
        if tailmix is not None:
            pairs = self._pairs(tailmix, encoded, columns, batch, step)
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
        ends, gradients = ([encoded.states], [states.grad]) if learns else ([], [])
        if encoded.head is not None:
            # The head reads words, not context vectors: nothing TailMix mixes reaches it.
            ends.append(cross_entropy(encoded.head, true, weights) / count)
            gradients.append(None)
        if ends:
            torch.autograd.backward(ends, gradients)
        return total

    def _changeable(self, batch: Batch) -> Tensor:
        """Which words SSMix may exchange: bool (B, T)."""
        return word_mask(batch.lengths, batch.ids.shape[1])

    def _saliency(self, batch: Batch, step: Step) -> Tensor:
        """How much the loss depends on every word: norm of its vector's gradient, (B, T).

        Dropout is off here, and no gradient of a parameter is touched.
        """
        words = self.embed(batch).detach().requires_grad_()
        encoded = self.encode(replace(batch, states=None), Reading(words=words))
        columns = self._candidates(encoded.head, step.targets, step.generator)
        states = encoded.states.detach().requires_grad_()
        gradient = torch.zeros_like(states)
        for block in self.blocks(columns, states.device):
            logits = self.logits(states, encoded.mask, block)
            w = None if step.weights is None else step.weights[block]
            loss = cross_entropy(logits, pick(step.targets, block), w)
            gradient += torch.autograd.grad(loss, states)[0]
        return torch.autograd.grad(encoded.states, words, gradient)[0].norm(dim=2)

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
        encoded: Encoded,
        columns: Tensor | None,
        batch: Batch,
        step: Step,
    ) -> Pairs:
        states, mask = encoded.states, encoded.mask
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
            return tailmix.pair(row, target, own, pieces, step.generator)

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
        encoded = self.encode(batch)
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

        The head takes no part in training attention: it knows the training texts too well and
        would leave little to learn there.
        """
        if head is None:
            return logits
        share = self.params.head_share
        return (1 - share) * logits + share * pick(head, block)

    @torch.no_grad()
    def weigh(self, batch: Batch, labels: Tensor) -> Tensor:
        """Attention of every label on the words of every text: (B, labels, T)."""
        encoded = self.encode(batch)
        weights = attention(encoded.states, encoded.mask, self.queries[labels])
        return self._per_word(weights)[:, :, : batch.ids.shape[1]]

    def _per_word(self, weights: Tensor) -> Tensor:
        """Weights of states (B, labels, S) as weights of words."""
        return weights


class AttentionNet(LabelAttention):
    """AttentionXML: word vectors and a BiLSTM under label attention."""

    in_threads = True  # see batch_pieces.works_alone

    def __init__(
        self,
        params: AttentionXmlParams,
        n_labels: int,
        vocabulary_size: int,
        dim: int,
        with_head: bool,
    ) -> None:
        super().__init__()
        self.params: AttentionXmlParams = params
        self.n_labels = n_labels
        self.words = Words(vocabulary_size, dim, params.train_embeddings, params.embedding_dropout)
        self.lstm = BiLstm(dim, params.hidden, params.dropout, params.words_per_step)
        self._add_labels(2 * params.hidden, vocabulary_size, with_head)

    def embed(self, batch: Batch) -> Tensor:
        return self.words(batch.ids, None)

    def states(self, batch: Batch, reading: Reading) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = self.lstm(
            *self.words.read(batch, reading), reading.generator
        )
        return found

    def _per_word(self, weights: Tensor) -> Tensor:
        group = self.params.words_per_step
        return weights.repeat_interleave(group, dim=2) / group


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
