"""TailMix and its rivals: targets, partners, mixed vectors and soft targets by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from coattail.arrays import Ragged
from coattail.models.deep import batching
from coattail.models.deep.deep_params import AttentionXmlParams, BilstmParams
from coattail.models.deep.nets.layers import PLAIN, Mixture, Reading, contexts, initialise
from coattail.models.deep.nets.step import Step
from coattail.models.deep.nets.tail_mix import (
    Pairs,
    TailMixer,
    batch_targets,
    draw_targets,
    label_graph,
    soft_targets,
)
from coattail.models.deep.training.fitting import Mixer, build_net
from coattail.models.deep.training.loop import Moment

# Labels 0-1 and 1-2 occur together; label 3 always stands alone.
Y = sp.csr_matrix(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]], np.float32))


def mixer(use_similarity: bool = True, use_graph: bool = True) -> TailMixer:
    made = TailMixer(Y, np.array([1.0, 2.0, 3.0, 4.0]), 2, 0.4, use_similarity, use_graph)
    made.seed([0])
    return made


def test_graph_joins_labels_of_one_text_but_no_label_with_itself() -> None:
    assert label_graph(Y).toarray().tolist() == [
        [0, 1, 0, 0],
        [1, 0, 1, 0],
        [0, 1, 0, 0],
        [0, 0, 0, 0],
    ]


def test_all_labels_are_drawn_when_few_and_rare_ones_more_often_when_many() -> None:
    rng = np.random.default_rng(0)
    assert draw_targets(np.array([4, 7]), np.array([1.0, 2.0]), 3, rng).tolist() == [4, 7]
    weights = np.array([0.0, 0.0, np.log(8.0)])  # softmax: 1/10, 1/10, 8/10
    first = [draw_targets(np.array([0, 1, 2]), weights, 1, rng)[0] for _ in range(2000)]
    assert np.bincount(first) / 2000 == pytest.approx([0.1, 0.1, 0.8], abs=0.03)


def test_labels_without_neighbours_are_not_drawn() -> None:
    allowed = np.array([True, True, True, False])
    drawn = batch_targets(Y, np.array([2, 0]), np.ones(4), 2, allowed, np.random.default_rng(0))
    assert [a.tolist() for a in drawn] == [[1, 1], [0, 1]]


def test_partner_is_the_nearest_neighbour_in_the_graph() -> None:
    row, target = torch.tensor([0, 0]), torch.tensor([1, 0])
    # Context vectors on a line: label 0 at 0, 1 at 10, 2 at 12, 3 at 9.
    places = torch.tensor([0.0, 10.0, 12.0, 9.0])
    vectors = places.view(1, 4, 1).expand(2, 4, 1)
    labels = torch.arange(4).expand(2, 4)
    own = places[target].unsqueeze(1)
    generator = torch.Generator().manual_seed(0)
    pairs = mixer().pair(row, target, own, [(labels, vectors)], generator)
    assert pairs.partner.tolist() == [2, 1]  # 3 is nearer to 1 but never occurs with it
    blocks = [(labels[:, :2], vectors[:, :2]), (labels[:, 2:], vectors[:, 2:])]
    pairs = mixer().pair(row, target, own, blocks, generator)
    assert pairs.partner.tolist() == [2, 1]
    free = mixer(use_graph=False).pair(row, target, own, [(labels, vectors)], generator)
    assert free.partner.tolist() == [3, 3]


def test_draws_whose_neighbours_are_not_candidates_are_dropped() -> None:
    row, target = torch.tensor([0, 1]), torch.tensor([0, 2])
    labels = torch.tensor([[0, 2, 3], [1, 2, 3]])  # label 1, the only neighbour, in one of them
    vectors, own = torch.zeros(2, 3, 1), torch.zeros(2, 1)
    pairs = mixer().pair(row, target, own, [(labels, vectors)], torch.Generator())
    assert (pairs.row.tolist(), pairs.target.tolist(), pairs.partner.tolist()) == ([1], [2], [1])


def test_without_similarity_any_neighbour_may_be_the_partner() -> None:
    target = torch.full((400,), 1)
    labels, vectors = torch.arange(4).expand(400, 4), torch.zeros(400, 4, 1)
    chosen = mixer(use_similarity=False).pair(
        torch.arange(400),
        target,
        torch.zeros(400, 1),
        [(labels, vectors)],
        torch.Generator().manual_seed(0),
    )
    share = np.bincount(chosen.partner.numpy(), minlength=4) / 400
    assert share == pytest.approx([0.5, 0, 0.5, 0], abs=0.1)


def test_soft_targets_by_hand() -> None:
    targets = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0]])
    pairs = Pairs(
        row=torch.tensor([0, 0]),
        target=torch.tensor([0, 1]),
        partner=torch.tensor([2, 2]),
        share=torch.tensor([0.7, 0.4]),
    )
    # Both share partner 2: the larger of 0.3 and 0.6.
    torch.testing.assert_close(
        soft_targets(targets, pairs), torch.tensor([[0.7, 0.4, 0.6, 0.0, 0.0]])
    )
    true_partner = Pairs(
        *(t[:1] for t in (pairs.row, pairs.target)), torch.tensor([1]), pairs.share[:1]
    )
    torch.testing.assert_close(
        soft_targets(targets, true_partner), torch.tensor([[0.7, 1.0, 0.0, 0.0, 0.0]])
    )
    assert targets.tolist() == [[1, 1, 0, 0, 0]]


def test_mixed_logit_is_the_logit_of_the_mixed_context_vector() -> None:
    params = AttentionXmlParams(
        model="attentionxml", hidden=3, fc=[4], candidates=0, label_outputs=False
    )
    net = build_net(params, 4, 10, 5)
    initialise(net, torch.Generator().manual_seed(0))
    tokens = Ragged(np.array([0, 3, 5]), np.array([2, 3, 4, 5, 6], np.int32))
    encoded = net.encode(batching.pad(tokens, np.arange(2), 9, "cpu"))
    one = torch.tensor([1])
    pairs = Pairs(one, torch.tensor([2]), torch.tensor([0]), torch.tensor([0.3]))
    vectors = contexts(encoded.states, encoded.mask, net.queries)
    wanted = net.fc(0.3 * vectors[1, 2] + 0.7 * vectors[1, 0])
    got = net._mixed_logits(encoded.states, encoded.mask, pairs)
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("candidates", [0, 3])
def test_tailmix_loss_is_the_loss_of_mixed_positions_and_plain_rest(candidates: int) -> None:
    params = AttentionXmlParams(
        model="attentionxml",
        hidden=3,
        fc=[4],
        candidates=candidates,
        dropout=0.0,
        head_dim=3,
        embedding_dropout=0.0,
    )
    net = build_net(params, 4, 10, 5)
    initialise(net, torch.Generator().manual_seed(0))
    tokens = Ragged(np.array([0, 3, 5, 6]), np.array([2, 3, 4, 5, 6, 7], np.int32))
    batch = batching.pad(tokens, np.arange(3), 9, "cpu")
    targets = torch.from_numpy(Y.toarray())
    columns = torch.tensor([[0, 1, 2], [1, 2, 3], [3, 0, 1]]) if candidates else None
    encoded = net.encode(batch)
    tail = mixer()
    step = Step(targets, None, torch.Generator(), tailmix=tail)
    pairs = net._pairs(tail, encoded, columns, batch, step)
    tail.seed([0])
    loss = net.backward_columns(batch, encoded, columns, step)
    encoded = net.encode(batch)
    everything = torch.arange(4)
    logits = net.logits(encoded.states, encoded.mask, everything)
    mixed = net._mixed_logits(encoded.states, encoded.mask, pairs)
    logits[pairs.row, pairs.target] = mixed
    soft = soft_targets(targets, pairs)
    if columns is not None:
        logits, soft = logits.gather(1, columns), soft.gather(1, columns)
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(logits, soft)
    assert len(pairs.row) == 4
    torch.testing.assert_close(loss, wanted.detach())


def test_the_cheap_head_learns_from_true_labels_while_attention_mixes() -> None:
    params = AttentionXmlParams(model="attentionxml", hidden=3, fc=[4], candidates=3, head_dim=3)
    tokens = Ragged(np.array([0, 3, 5, 6]), np.array([2, 3, 4, 5, 6, 7], np.int32))
    batch = batching.pad(tokens, np.arange(3), 9, "cpu")
    columns = torch.tensor([[0, 1, 2], [1, 2, 3], [3, 0, 1]])

    def gradients(tail: TailMixer | None) -> dict[str, torch.Tensor]:
        net = build_net(params, 4, 10, 5)
        initialise(net, torch.Generator().manual_seed(0))
        targets = torch.from_numpy(Y.toarray())
        step = Step(targets, None, torch.Generator(), tailmix=tail)
        net.backward_columns(batch, net.encode(batch), columns, step)
        return {name: p.grad.to_dense() for name, p in net.named_parameters() if p.grad is not None}

    plain, mixed = gradients(None), gradients(mixer())
    assert not torch.equal(plain["queries"], mixed["queries"])
    of_head = [name for name in plain if name.startswith("head.words.")]
    assert of_head
    for name in of_head:
        assert plain[name].abs().sum() > 0
        torch.testing.assert_close(plain[name], mixed[name])


def test_texts_are_blended_with_their_partner() -> None:
    mixture = Mixture(torch.tensor([1, 0]), torch.tensor([0.75, 0.5]), "word")
    blended = mixture.blend(torch.tensor([[4.0, 0.0], [0.0, 8.0]]))
    assert blended.tolist() == [[3.0, 2.0], [2.0, 4.0]]


def test_mixing_a_text_with_itself_changes_nothing() -> None:
    for place in ("word", "hidden"):
        net = build_net(BilstmParams(model="bilstm", hidden=3, fc=[4]), 4, 10, 5)
        initialise(net, torch.Generator().manual_seed(0))
        tokens = Ragged(np.array([0, 3, 5]), np.array([2, 3, 4, 5, 6], np.int32))
        batch = batching.pad(tokens, np.arange(2), 9, "cpu")
        same = Mixture(torch.tensor([0, 1]), torch.tensor([0.3, 0.6]), place)
        torch.testing.assert_close(
            net.pooled(batch, Reading(mixture=same)), net.pooled(batch, PLAIN)
        )


def test_mixing_starts_at_its_epoch_and_depends_on_the_step_only() -> None:
    params = BilstmParams(model="bilstm", mix="wordmix", mix_from=2)
    made = Mixer(params, Y, np.ones(4))
    assert made.at(5, Moment(9, 1, 0), "cpu") == (None, None)
    first, again, other = (made.at(5, Moment(step, 2, 0), "cpu")[0] for step in (9, 9, 10))
    assert first is not None
    assert again is not None
    assert other is not None
    assert torch.equal(first.share, again.share)
    assert torch.equal(first.partner, again.partner)
    assert not torch.equal(first.share, other.share)
