"""A pre-trained encoder inside a network, mixing in its layers, and label attention over it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from coattail.errors import ModelError
from coattail.models.deep.batching import Batch
from coattail.models.deep.deep_params import AplcParams, LarobertaParams
from coattail.models.deep.nets.attentionxml import LabelAttention
from coattail.models.deep.nets.layers import PLAIN, Mixture, Reading, dropout, word_mask
from coattail.models.deep.nets.pretrained import Pretrained

INSIDE = ("word", "layer")
"""Places of a mixture that lie inside the encoder."""


class TextEncoder(nn.Module):
    """Texts as word pieces in, one state per piece out: (B, T, d) and the mask of real pieces.

    Padding is masked and stands at the end, so a text has the same states alone and in a batch.
    The encoder's own dropout draws from the generator of the step; without one, or frozen, it is
    off.
    """

    def __init__(self, pretrained: Pretrained, params: LarobertaParams | AplcParams) -> None:
        super().__init__()
        self.inner = pretrained.model
        self.limit, self.pad_id = pretrained.limit, pretrained.pad_id
        self.frozen, self.mix_layers = params.freeze_encoder, list(params.mix_layers)
        self.register_buffer("signs", torch.tensor(pretrained.signs), persistent=False)
        self.inner.requires_grad_(not self.frozen)
        if not params.train_embeddings:
            self.inner.get_input_embeddings().requires_grad_(False)
        if params.mix in ("wordmix", "tmix"):
            self._check_layers(params.mix)

    @property
    def width(self) -> int:
        return int(self.inner.config.hidden_size)

    def cut(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Ids (B, T) no longer than the encoder reads, its own sign at padding, and the mask."""
        ids = batch.ids[:, : self.limit]
        mask = word_mask(batch.lengths, ids.shape[1])
        return ids.masked_fill(~mask, self.pad_id), mask

    def embed(self, batch: Batch) -> Tensor:
        return self.inner.get_input_embeddings()(self.cut(batch)[0])

    def changeable(self, batch: Batch) -> Tensor:
        """Pieces of a text without the signs for its start, its end and padding."""
        ids, mask = self.cut(batch)
        return mask & ~torch.isin(ids, self.signs)

    def forward(self, batch: Batch, reading: Reading = PLAIN) -> tuple[Tensor, Tensor]:
        generator, mixture, words = reading.generator, reading.mixture, reading.words
        ids, mask = self.cut(batch)
        read = {"input_ids": ids} if words is None else {"inputs_embeds": words}
        self.inner.train(generator is not None and not self.frozen)
        learns = torch.is_grad_enabled() and (not self.frozen or words is not None)
        with torch.set_grad_enabled(learns), self._random_numbers(generator):
            if mixture is None or mixture.place not in INSIDE:
                return self._run(read, mask), mask
            depth = self._draw_layer(mixture, generator)
            with self._mixing(mixture, depth, mask):
                states = self._run(read, mask)
        if depth == len(self._layers()):
            return mixture.blend_states(states, mask)
        return states, mask | mask[mixture.partner]

    def _run(self, read: dict[str, Tensor], mask: Tensor) -> Tensor:
        return self.inner(**read, attention_mask=mask.long()).last_hidden_state

    @contextmanager
    def _random_numbers(self, generator: torch.Generator | None) -> Iterator[None]:
        """Dropout layers draw global numbers: seed these from ours, and put them back after."""
        if generator is None or self.frozen:
            yield
            return
        device = generator.device
        seed = int(torch.randint(2**62, (1,), generator=generator, device=device))
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield

    # --- mixing in a layer

    def _layers(self) -> nn.ModuleList:
        count = self.inner.config.num_hidden_layers
        for module in self.inner.modules():
            if isinstance(module, nn.ModuleList) and len(module) == count:
                return module
        raise ModelError(f"{type(self.inner).__name__} has no list of {count} layers to mix in")

    def _check_layers(self, mix: str) -> None:
        if self.inner.config.model_type == "xlnet":
            raise ModelError(f"{mix} does not work inside XLNet, whose layers are laid out by time")
        if max(self.mix_layers, default=0) > len(self._layers()):
            raise ModelError(
                f"mix_layers {self.mix_layers}: the encoder has {len(self._layers())} layers"
            )

    def _draw_layer(self, mixture: Mixture, generator: torch.Generator | None) -> int:
        """Layers that run before the mixture: none for wordMix, one of ``mix_layers`` for TMix."""
        if mixture.place == "word":
            return 0
        depth = len(self._layers())
        choices = self.mix_layers or sorted({-(-depth * part // 12) for part in (7, 9, 12)})
        device = generator.device if generator is not None else None
        drawn = torch.randint(len(choices), (1,), generator=generator, device=device)
        return choices[int(drawn)]

    @contextmanager
    def _mixing(self, mixture: Mixture, depth: int, mask: Tensor) -> Iterator[None]:
        """Until layer ``depth`` every text is alone; then it reads as the mixture of two."""

        def enter(place: int) -> Any:
            def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                states, seen = args[0], args[1]
                if place == depth:
                    states = mixture.blend(states.masked_fill(~mask.unsqueeze(2), 0.0))
                if seen is not None:
                    seen = torch.maximum(seen, seen[mixture.partner])
                return (states, seen, *args[2:]), kwargs

            return hook

        hooks = [
            layer.register_forward_pre_hook(enter(place), with_kwargs=True)
            for place, layer in enumerate(self._layers())
            if place >= depth
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


class LarobertaNet(LabelAttention):
    """Label attention and shared layers over the states of a pre-trained encoder."""

    def __init__(self, params: LarobertaParams, n_labels: int, pretrained: Pretrained) -> None:
        super().__init__()
        self.params: LarobertaParams = params
        self.n_labels = n_labels
        self.in_threads = params.freeze_encoder  # else dropout draws global numbers
        self.encoder = TextEncoder(pretrained, params)
        with_head = 0 < params.candidates < n_labels
        self._add_labels(self.encoder.width, pretrained.vocabulary_size, with_head)

    def embed(self, batch: Batch) -> Tensor:
        return self.encoder.embed(batch)

    def fixed(self, batch: Batch) -> Tensor:
        """What a frozen encoder makes of texts: (B, T, d)."""
        states: Tensor = self.encoder(batch)[0]
        return states

    def states(self, batch: Batch, reading: Reading) -> tuple[Tensor, Tensor]:
        if batch.states is not None:
            states, mask = batch.states, word_mask(batch.lengths, batch.states.shape[1])
        else:
            states, mask = self.encoder(batch, reading)
        return dropout(states, self.params.dropout, reading.generator), mask

    def _changeable(self, batch: Batch) -> Tensor:
        return self.encoder.changeable(batch)
