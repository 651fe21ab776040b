"""SSMix: spans exchanged by hand-made saliency, and AttentionXML trained with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from coattail.arrays import Ragged
from coattail.config import parse
from coattail.errors import ConfigError
from coattail.models.deep.batching import pad
from coattail.models.deep.deep_models import build
from coattail.models.deep.deep_params import AttentionXmlParams, DeepParams
from coattail.models.deep.nets.attentionxml import AttentionNet, pick
from coattail.models.deep.nets.layers import Reading, initialise, word_mask
from coattail.models.deep.nets.loss import cross_entropy
from coattail.models.deep.nets.span_mix import exchange_spans
from coattail.models.deep.nets.step import Step
from coattail.testing.model_contract import same
from coattail.testing.network_contract import fit


def texts(*rows: list[int]) -> Any:
    tokens = Ragged(
        np.cumsum([0, *(len(row) for row in rows)]),
        np.array([w for r in rows for w in r], np.int32),
    )
    return pad(tokens, np.arange(len(rows)), 100, "cpu")


def exchange(batch: Any, saliency: list[list[float]], partner: list[int], share: float) -> Any:
    width = batch.ids.shape[1]
    weight = torch.tensor([row + [9.0] * (width - len(row)) for row in saliency])
    mask = word_mask(batch.lengths, width)
    return exchange_spans(batch, mask, weight, torch.tensor(partner), share)


def test_least_salient_span_gives_way_to_the_partners_most_salient_one() -> None:
    batch = texts([11, 12, 13, 14, 15, 16], [21, 22, 23, 24, 25])
    saliency = [[3, 1, 2, 1, 1, 5], [1, 4, 4, 0, 3]]
    mixed, mixture = exchange(batch, saliency, [1, 0], 0.34)
    # text 0: 2 words; sums 4 3 3 2 6 -> place 3; text 1 gives its first largest pair, 22 23
    assert mixed.ids[0, :6].tolist() == [11, 12, 13, 22, 23, 16]
    # text 1: 1 word; the least is 24, the largest of text 0 is 16
    assert mixed.ids[1, :5].tolist() == [21, 22, 23, 16, 25]
    assert mixture.share.tolist() == pytest.approx([1 - 2 / 6, 1 - 1 / 5])
    labels = torch.tensor([[1.0, 0, 1], [0, 1, 1]])
    blended = mixture.blend(labels)
    assert blended[0].tolist() == pytest.approx([2 / 3, 1 / 3, 1])
    assert blended[1].tolist() == pytest.approx([1 / 5, 4 / 5, 1])
    assert batch.ids[0, 3] == 14  # the batch itself stays


def test_words_that_may_not_change_are_in_no_span() -> None:
    batch = texts([1, 12, 13, 14, 2], [1, 22, 23, 24, 2])
    mask = word_mask(batch.lengths, batch.ids.shape[1])
    mask[:, 0] = mask[:, 4] = False
    weight = torch.zeros(batch.ids.shape)
    weight[1] = torch.tensor([99.0, 1, 2, 3, 99, 0, 0, 0])
    mixed, mixture = exchange_spans(batch, mask, weight, torch.tensor([1, 0]), 0.67)
    assert mixed.ids[0, :5].tolist() == [1, 23, 24, 14, 2]
    assert mixture.share[0] == pytest.approx(1 / 3)


def test_short_texts_stay_as_they_are() -> None:
    batch = texts([11], [21, 22, 23, 24])
    mixed, mixture = exchange(batch, [[1.0], [1, 2, 3, 4]], [1, 0], 0.5)
    assert torch.equal(mixed.ids, batch.ids)  # one word; and a partner shorter than two words
    assert mixture.share.tolist() == [1, 1]


def test_a_text_paired_with_itself_keeps_its_labels() -> None:
    batch = texts([11, 12, 13])
    _, mixture = exchange(batch, [[1, 2, 3]], [0], 0.4)
    labels = torch.tensor([[1.0, 0, 1]])
    torch.testing.assert_close(mixture.blend(labels), labels)


def settings(**more: Any) -> AttentionXmlParams:
    small = {"model": "attentionxml", "hidden": 4, "fc": [4], "embedding_dim": 6, "batch": 8}
    made: AttentionXmlParams = parse({**small, "candidates": 0, **more}, DeepParams, "test")
    return made


def test_saliency_of_words_is_the_norm_of_their_gradient_and_touches_no_parameter() -> None:
    net = AttentionNet(settings(mix="ssmix", label_block=2), 5, 30, 6, with_head=False)
    initialise(net, torch.Generator().manual_seed(0))
    batch = texts([5, 6, 7], [8, 9])
    targets = torch.tensor([[1.0, 0, 0, 1, 0], [0, 0, 1, 0, 0]])
    found = net._saliency(batch, Step(targets, None, torch.Generator()))
    assert all(p.grad is None for p in net.parameters())
    words = net.embed(batch).detach().requires_grad_()
    encoded = net.encode(batch, Reading(words=words))
    every = torch.arange(5)
    logits = net.logits(encoded.states, encoded.mask, every)
    cross_entropy(logits, pick(targets, every), None).backward()
    torch.testing.assert_close(found, words.grad.norm(dim=2))
    assert float(found[1, 2:].abs().max()) == 0  # padding


@pytest.mark.parametrize("candidates", [0, 4])
def test_attentionxml_trains_with_exchanged_spans(candidates: int) -> None:
    rng = np.random.default_rng(0)
    tokens = Ragged(np.arange(0, 241, 6), rng.integers(2, 30, 240).astype(np.int32))
    Y = sp.random(40, 8, 0.3, format="csr", random_state=1, dtype=np.float32)
    Y.data[:] = 1
    answers = []
    for mix in ("ssmix", "ssmix", "none"):
        made = build(settings(mix=mix, candidates=candidates, head_dim=4, epochs=2))
        fit(made, tokens, Y, vocabulary_size=30, threads=1)
        answers.append(made.predict(tokens, 3))  # type: ignore[arg-type]
    assert same(answers[0], answers[1])
    assert not same(answers[0], answers[2])


@pytest.mark.parametrize("model", ["xmlcnn", "bilstm"])
def test_networks_without_a_way_to_exchange_spans_refuse(model: str) -> None:
    with pytest.raises(ConfigError, match="ssmix"):
        parse({"model": model, "mix": "ssmix"}, DeepParams, "test")
