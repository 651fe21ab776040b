"""Encoder, attention, convolutions and loss: masks, shapes, and numbers computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from coattail.arrays import Ragged
from coattail.models.deep import batching
from coattail.models.deep.deep_params import AttentionXmlParams, BilstmParams, XmlCnnParams
from coattail.models.deep.nets.attentionxml import AttentionNet, candidates
from coattail.models.deep.nets.layers import (
    BiLstm,
    CheapHead,
    Convolutions,
    attention,
    contexts,
    dropout,
    initialise,
    max_pool,
    mean_pool,
    reversal,
    word_mask,
)
from coattail.models.deep.nets.loss import cross_entropy
from coattail.models.deep.nets.step import Step
from coattail.models.deep.training.fitting import build_net
from coattail.models.deep.training.word_start import bags

TEXTS = [[2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4], [5], [6, 7, 8], [], [9, 9, 2, 2, 5]]


def ragged(texts: list[list[int]]) -> Ragged:
    indptr = np.cumsum([0, *(len(t) for t in texts)]).astype(np.int64)
    return Ragged(indptr, np.array([w for t in texts for w in t], np.int32))


def batch_of(texts: list[list[int]]) -> batching.Batch:
    return batching.pad(ragged(texts), np.arange(len(texts)), 50, "cpu")


def nets() -> list[tuple[str, torch.nn.Module]]:
    chosen = [
        AttentionXmlParams(model="attentionxml", hidden=5, fc=[4], candidates=0),
        AttentionXmlParams(model="attentionxml", hidden=5, fc=[4], candidates=3, head_dim=4),
        AttentionXmlParams(
            model="attentionxml", hidden=5, fc=[4], candidates=0, words_per_step=2, label_block=2
        ),
        XmlCnnParams(model="xmlcnn", filters=3, bottleneck=6, pools=3),
        BilstmParams(model="bilstm", hidden=5, fc=[6]),
    ]
    built = []
    for params in chosen:
        net = build_net(params, n_labels=7, vocabulary_size=10, dim=6)
        initialise(net, torch.Generator().manual_seed(1))
        if isinstance(net, AttentionNet) and net.head is not None:
            net.head.rarity[2:] = torch.arange(1.0, 9.0)
        built.append((f"{params.model}-{getattr(params, 'candidates', '')}", net.eval()))
    return built


@pytest.mark.parametrize(("name", "net"), nets(), ids=lambda x: x if isinstance(x, str) else "")
def test_padded_batch_gives_the_logits_of_single_texts(name: str, net: torch.nn.Module) -> None:
    together_labels, together = net.score(batch_of(TEXTS), 3)
    for i, text in enumerate(TEXTS):
        labels, alone = net.score(batch_of([text]), 3)
        assert torch.equal(labels[0], together_labels[i])
        torch.testing.assert_close(alone[0], together[i], rtol=1e-4, atol=1e-5)


def test_bag_of_the_cheap_head_counts_all_words_of_a_text_those_after_the_cut_too() -> None:
    head = CheapHead(dim=3, width=2, n_labels=4, vocabulary_size=10, rate=0.5)
    initialise(head, torch.Generator().manual_seed(3))
    head.rarity[:] = torch.arange(10.0)
    for cut in (2, 50):
        bag = head.bag(batching.pad(ragged(TEXTS), np.arange(len(TEXTS)), cut, "cpu"), None)
        for i, text in enumerate(TEXTS):
            words, counts = np.unique(text or [batching.UNK], return_counts=True)
            weight = (1 + np.log(counts)) * words
            wanted = weight / np.linalg.norm(weight) @ head.table.weight.detach().numpy()[words]
            np.testing.assert_allclose(bag[i].detach().numpy(), wanted, rtol=1e-5)


def test_the_same_bag_of_words_is_used_to_find_the_start() -> None:
    rarity = np.arange(10.0)
    head = CheapHead(dim=10, width=2, n_labels=4, vocabulary_size=10, rate=0.0)
    head.fill(np.eye(10, dtype=np.float32), rarity.astype(np.float32), np.zeros(4, np.float32))
    texts = [text for text in TEXTS if text]
    wanted = bags(ragged(texts), rarity).toarray()
    np.testing.assert_allclose(head.bag(batch_of(texts), None).detach(), wanted, rtol=1e-6)


def test_dropout_of_the_bag_is_for_training_only() -> None:
    head = CheapHead(dim=200, width=2, n_labels=4, vocabulary_size=10, rate=0.5)
    initialise(head, torch.Generator().manual_seed(3))
    batch = batch_of([[2, 3]])
    whole = head.bag(batch, None)
    dropped = head.bag(batch, torch.Generator().manual_seed(1))
    kept = dropped != 0
    assert 60 < int(kept.sum()) < 140
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])


def test_backward_direction_reads_each_text_from_its_own_end() -> None:
    assert reversal(torch.tensor([3, 1, 4]), 4).tolist() == [
        [2, 1, 0, 3],
        [0, 1, 2, 3],
        [3, 2, 1, 0],
    ]


def test_bilstm_equals_torchs_packed_bidirectional_lstm() -> None:
    torch.manual_seed(0)
    ours = BiLstm(3, 4, rate=0.0)
    theirs = torch.nn.LSTM(3, 4, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for name, parameter in ours.ahead.named_parameters():
            getattr(theirs, name).copy_(parameter)
        for name, parameter in ours.back.named_parameters():
            getattr(theirs, f"{name}_reverse").copy_(parameter)
    x, lengths = torch.randn(3, 6, 3), torch.tensor([6, 2, 4])
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        x, lengths, batch_first=True, enforce_sorted=False
    )
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    states, mask = ours(x, lengths, None)
    torch.testing.assert_close(states[mask], wanted[mask])


def test_start_state_is_learnable_and_used() -> None:
    lstm = BiLstm(3, 4, rate=0.0)
    states, _ = lstm(torch.randn(2, 5, 3), torch.tensor([5, 3]), None)
    states.sum().backward()
    assert lstm.start.grad is not None
    assert lstm.start.grad.abs().min() > 0


def test_attention_sums_to_one_over_real_words_only() -> None:
    torch.manual_seed(0)
    states, lengths = torch.randn(3, 6, 4), torch.tensor([6, 1, 3])
    weights = attention(states, word_mask(lengths, 6), torch.randn(5, 4))
    assert weights.shape == (3, 5, 6)
    torch.testing.assert_close(weights.sum(dim=2), torch.ones(3, 5))
    assert weights[1, :, 1:].abs().max() == 0
    assert weights[2, :, 3:].abs().max() == 0


def test_contexts_of_shared_and_own_queries_agree() -> None:
    torch.manual_seed(0)
    states, mask = torch.randn(2, 5, 4), word_mask(torch.tensor([5, 2]), 5)
    queries = torch.randn(3, 4)
    shared = contexts(states, mask, queries)
    torch.testing.assert_close(contexts(states, mask, queries.expand(2, 3, 4)), shared)


def test_context_by_hand() -> None:
    states = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]]])
    mask = torch.tensor([[True, True, False]])
    query = torch.tensor([[float(np.log(3.0)), 0.0]])  # weights 3/4 and 1/4
    torch.testing.assert_close(contexts(states, mask, query), torch.tensor([[[0.75, 0.25]]]))


def test_pooling_ignores_padding() -> None:
    states = torch.tensor([[[1.0], [3.0], [99.0]]])
    mask = torch.tensor([[True, True, False]])
    assert mean_pool(states, mask).item() == 2
    assert max_pool(states, mask).item() == 3


def test_dynamic_pooling_takes_the_maximum_of_each_chunk() -> None:
    maps = Convolutions(1, 1, [1], pools=2)
    with torch.no_grad():
        maps.maps[0].weight.fill_(1.0)
        maps.maps[0].bias.zero_()
    x = torch.tensor([[[1.0], [5.0], [2.0], [4.0], [0.0]], [[3.0], [0.0], [0.0], [0.0], [0.0]]])
    out = maps(x, torch.tensor([4, 1]))
    assert out.tolist() == [[5.0, 4.0], [3.0, 3.0]]


def test_dropout_needs_a_generator_and_keeps_the_mean() -> None:
    x = torch.ones(200, 3, 50)
    assert dropout(x, 0.5, None) is x
    dropped = dropout(x, 0.25, torch.Generator().manual_seed(0))
    assert torch.equal(dropped[:, 0], dropped[:, 2])  # the same features at every word
    assert abs(float(dropped.mean()) - 1) < 0.03


def test_blocks_of_labels_give_the_gradients_of_one_piece() -> None:
    whole = AttentionXmlParams(model="attentionxml", hidden=4, fc=[3], candidates=0)
    pieces = whole.model_copy(update={"label_block": 2})
    targets = torch.zeros(len(TEXTS), 7)
    targets[0, 1] = targets[2, 6] = 1
    gradients, losses = [], []
    for params in (whole, pieces):
        net = build_net(params, 7, 10, 5)
        initialise(net, torch.Generator().manual_seed(3))
        generator = torch.Generator().manual_seed(4)
        losses.append(net.backward(batch_of(TEXTS), Step(targets, None, generator)))
        gradients.append({name: p.grad for name, p in net.named_parameters()})
    torch.testing.assert_close(losses[0], losses[1])
    for name, gradient in gradients[0].items():
        other = gradients[1][name]
        if gradient.is_sparse:
            gradient, other = gradient.to_dense(), other.to_dense()
        torch.testing.assert_close(gradient, other, msg=name)


def test_blockwise_gradient_is_the_gradient_of_the_mean_loss() -> None:
    params = AttentionXmlParams(
        model="attentionxml",
        hidden=4,
        fc=[3],
        candidates=0,
        label_block=3,
        dropout=0.0,
        embedding_dropout=0.0,
    )
    net = build_net(params, 7, 10, 5)
    initialise(net, torch.Generator().manual_seed(3))
    targets = (torch.rand(len(TEXTS), 7, generator=torch.Generator().manual_seed(5)) < 0.3).float()
    net.backward(batch_of(TEXTS), Step(targets, None, torch.Generator().manual_seed(0)))
    got = net.queries.grad.clone()
    net.zero_grad()
    encoded = net.encode(batch_of(TEXTS))
    logits = net.logits(encoded.states, encoded.mask, torch.arange(7))
    torch.nn.functional.binary_cross_entropy_with_logits(logits, targets).backward()
    torch.testing.assert_close(got, net.queries.grad)


def test_candidates_hold_positives_then_hardest_then_noise_without_repeats() -> None:
    generator = torch.Generator().manual_seed(0)
    head = torch.tensor([[0.1, 0.9, 0.2, 0.8, 0.3, 0.7, 0.0, -1.0]])
    targets = torch.zeros(1, 8)
    targets[0, 7] = 1
    chosen = candidates(head, targets, count=5, noise=2, generator=generator)[0].tolist()
    assert chosen[:3] == [7, 1, 3]
    assert len(set(chosen)) == 5


def test_cross_entropy_weighs_the_positive_part_only() -> None:
    logits = torch.tensor([[0.0, 0.0, np.log(3.0)]])  # p = 1/2, 1/2, 3/4
    targets = torch.tensor([[1.0, 0.0, 0.25]])
    weights = torch.tensor([2.0, 5.0, 4.0])
    third = -(4 * 0.25 * np.log(0.75) + 0.75 * np.log(0.25))
    wanted = 2 * np.log(2) + np.log(2) + third
    assert float(cross_entropy(logits, targets, weights)) == pytest.approx(wanted, rel=1e-5)
    skip = torch.tensor([[False, True, True]])
    assert float(cross_entropy(logits, targets, weights, skip)) == pytest.approx(2 * np.log(2))
