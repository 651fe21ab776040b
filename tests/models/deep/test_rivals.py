"""HTTN's rivals by hand: BBN's sampler and alpha, OLTR's memory, LTMCP's halves, DXML's places."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from coattail.arrays import Ragged
from coattail.config import parse
from coattail.errors import ConfigError, ModelError
from coattail.models.deep import batching
from coattail.models.deep.nets.tail_mix import label_graph
from coattail.models.deep.transfer import dxml, label_walks
from coattail.models.deep.transfer.bbn import Bbn, ReversedSampler, alpha
from coattail.models.deep.transfer.dxml import Dxml, nearest, vote
from coattail.models.deep.transfer.ltmcp import Ltmcp
from coattail.models.deep.transfer.oltr import Memory, centroids_of
from coattail.models.deep.transfer.transfer_models import build, load
from coattail.models.deep.transfer.transfer_params import (
    BbnParams,
    DxmlParams,
    LtmcpParams,
    OltrParams,
    TransferParams,
)
from coattail.testing.network_contract import fit

SMALL = {"dim": 8, "hidden": 6, "embedding_dim": 8, "batch": 16, "lr": 0.02, "epochs": 2}
WORDS = 30
RIVALS = ("bbn", "oltr", "ltmcp", "dxml")


def topics(n=120, seed=0):
    """Label j of six is told by words 2 + 4j to 5 + 4j; label 0 is frequent, 5 has no text."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(5, size=n, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    texts = [2 + 4 * label + rng.integers(0, 4, rng.integers(2, 6)) for label in truth]
    indptr = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    tokens = Ragged(indptr, np.concatenate(texts).astype(np.int32))
    return tokens, sp.csr_matrix(np.eye(6, dtype=np.float32)[truth])


def fitted(model, tokens=None, Y=None, **settings):
    if tokens is None or Y is None:
        tokens, Y = topics()
    params = parse({**SMALL, "model": model, **settings}, TransferParams, "test")
    return fit(build(params), tokens, Y, vocabulary_size=WORDS, threads=1)


# --- BBN -----------------------------------------------------------------------------------------


def test_alpha_falls_from_one_like_a_parabola():
    assert [alpha(epoch, 4) for epoch in range(4)] == [1, 15 / 16, 3 / 4, 7 / 16]


def test_reversed_sampler_draws_labels_by_one_over_their_texts():
    # Texts 0-3 have label 0, text 4 label 2, text 5 labels 0 and 2; label 1 has none.
    Y = sp.csr_matrix(np.array([[1, 0, 0]] * 4 + [[0, 0, 1], [1, 0, 1]], dtype=np.float32))
    sampler = ReversedSampler(Y)
    np.testing.assert_array_equal(sampler.labels, [0, 2])
    np.testing.assert_allclose(sampler.share, [2 / 7, 5 / 7])
    drawn = sampler.draw(70_000, np.random.default_rng(0))
    shares = np.bincount(drawn, minlength=6) / len(drawn)
    expected = [2 / 35] * 4 + [5 / 14, 2 / 35 + 5 / 14]
    np.testing.assert_allclose(shares, expected, atol=0.006)


def test_both_branches_count_the_same_when_ranking():
    model = fitted("bbn")
    assert isinstance(model, Bbn)
    tokens, _ = topics(n=5, seed=1)
    texts = batching.pad(tokens, np.arange(tokens.n), 99, "cpu")
    with torch.inference_mode():
        first = model.net_(texts) @ model.rows_[0].T
        second = model.branch_(model.net_.states(texts), texts.lengths) @ model.rows_[1].T
        expected = torch.sigmoid(first + second + model.net_.offset).numpy()
    got = model.predict(tokens, 6).to_csr(6).toarray()
    np.testing.assert_allclose(got[texts.rows][:, :5], expected, rtol=1e-5)


# --- OLTR ----------------------------------------------------------------------------------------


def test_centroids_are_means_of_the_texts_of_a_label():
    vectors = np.array([[1.0, 0], [0, 1], [1, 1]], np.float32)
    Y = sp.csr_matrix(np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0]], np.float32))
    np.testing.assert_allclose(centroids_of(vectors, Y), [[0.5, 0.5], [0.5, 1], [0, 0]])


def memory(**settings):
    params = OltrParams(model="oltr", dim=2, reach=2.0, cosine_scale=3.0, **settings)
    made = Memory(params, torch.tensor([[1.0, 0.0], [0.0, 0.5]]), -1.0)
    with torch.no_grad():
        made.recall.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        made.recall.bias.copy_(torch.tensor([0.0, math.log(3.0)]))
        made.select.weight.copy_(torch.tensor([[0.0, 0.0], [0.0, 0.0]]))
        made.select.bias.copy_(torch.tensor([0.0, 1.0]))
        made.rows.weight.copy_(torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    return made


def test_memory_attention_and_reach_are_those_of_the_formula():
    v = torch.tensor([[0.6, 0.8]])
    weights = np.array([math.exp(0.6), 3 * math.exp(0.8)])
    weights /= weights.sum()
    recalled = weights @ np.array([[1.0, 0.0], [0.0, 0.5]])
    distance = min(math.hypot(0.4, 0.8), math.hypot(0.6, 0.3))
    enriched = np.array([0.6, 0.8]) + np.tanh([0.0, 1.0]) * recalled
    expected = 2.0 / distance * enriched
    np.testing.assert_allclose(memory().modulate(v)[0].detach().numpy(), expected, rtol=1e-5)
    # The cosine classifier: length squashed to |m|^2 / (1 + |m|^2), rows of unit length.
    square = expected @ expected
    cosines = expected / math.sqrt(square)
    logits = 3.0 * square / (1 + square) * cosines - 1.0
    np.testing.assert_allclose(memory()(v)[0].detach().numpy(), logits, rtol=1e-5)


def test_a_text_on_a_centroid_has_a_finite_reach():
    at_centroid = torch.tensor([[1.0, 0.0]])
    assert torch.isfinite(memory()(at_centroid)).all()


def test_pull_is_the_distance_to_own_centroids_and_a_hinge_on_the_others():
    v, truth = torch.tensor([[0.6, 0.8]]), torch.tensor([[1.0, 0.0]])
    own, other = 0.4**2 + 0.8**2, 0.6**2 + 0.3**2
    expected = own + 0.01 * (1.0 - other)
    assert float(memory().pull(v, truth).detach()) == pytest.approx(expected, rel=1e-5)
    assert float(memory(margin=0.1).pull(v, truth).detach()) == pytest.approx(own, rel=1e-5)


def test_the_memory_learns_its_centroids_from_the_pull_only():
    made = memory()
    made(torch.tensor([[0.6, 0.8]])).sum().backward()
    assert made.centroids.grad is None
    made.pull(torch.tensor([[0.6, 0.8]]), torch.tensor([[1.0, 0.0]])).backward()
    assert made.centroids.grad is not None


# --- LTMCP ---------------------------------------------------------------------------------------


def test_head_labels_come_from_the_network_and_tail_labels_from_words():
    model = fitted("ltmcp", head_count=2)
    assert isinstance(model, Ltmcp)
    assert (model.head_.tolist(), model.tail_.tolist()) == ([0, 1], [2, 3, 4])
    tokens, _ = topics(n=8, seed=2)
    got = model.predict(tokens, 6).to_csr(6).toarray()
    texts = batching.pad(tokens, np.arange(tokens.n), 99, "cpu")
    with torch.inference_mode():
        network = torch.sigmoid(model.net_.logits(texts, model.rows_)).numpy()
    np.testing.assert_allclose(got[texts.rows][:, :2], network, rtol=1e-5)
    assert model.linear_ is not None
    words = bags_by_hand(model, tokens)
    linear = model.linear_.predict(words, 3).to_csr(3).toarray()
    np.testing.assert_allclose(got[:, 2:5], linear, rtol=1e-5)


def bags_by_hand(model, tokens):
    """(1 + ln count) times rarity, in rows of length one, word by word."""
    rows = np.zeros((tokens.n, WORDS), np.float32)
    for i in range(tokens.n):
        words = tokens.row(i).tolist()
        weights = {w: (1 + math.log(words.count(w))) * model.rarity_[w] for w in set(words)}
        length = math.sqrt(sum(weight**2 for weight in weights.values()))
        for w, weight in weights.items():
            rows[i, w] = weight / length
    return sp.csr_matrix(rows)


def test_ltmcp_without_a_tail_is_the_network_alone(tmp_path):
    model = fitted("ltmcp", head_share=1.0)
    assert isinstance(model, Ltmcp)
    assert model.linear_ is None
    model.save(tmp_path / "m")
    tokens, _ = topics(n=8, seed=2)
    np.testing.assert_array_equal(
        load(tmp_path / "m").predict(tokens, 3).labels, model.predict(tokens, 3).labels
    )


# --- DXML ----------------------------------------------------------------------------------------


def graph(*edges, n=4):
    A = np.zeros((n, n))
    for a, b in edges:
        A[a, b] = A[b, a] = 1
    return sp.csr_matrix(A)


def test_walks_follow_edges_and_lonely_labels_stay():
    walks = label_walks.random_walks(graph((0, 1), (1, 2)), 50, 6, np.random.default_rng(0))
    assert walks.shape == (200, 6)
    np.testing.assert_array_equal(walks[:, 0], np.repeat(np.arange(4), 50))
    steps = {(int(a), int(b)) for row in walks for a, b in pairwise(row)}
    assert steps == {(0, 1), (1, 0), (1, 2), (2, 1), (3, 3)}
    from_one = walks[50:100, 1]
    assert 10 < (from_one == 0).sum() < 40  # a neighbour at random, not always the first


def test_walks_without_any_edge_stay_where_they_are():
    walks = label_walks.random_walks(graph(n=3), 1, 4, np.random.default_rng(0))
    np.testing.assert_array_equal(walks, np.repeat([[0], [1], [2]], 4, axis=1))


def test_window_counts_are_those_of_a_slow_count():
    walks = np.array([[0, 1, 2, 1], [2, 2, 0, 1]])
    expected = np.zeros((3, 3))
    for walk in walks:
        for i in range(4):
            for j in range(4):
                if 0 < abs(i - j) <= 2:
                    expected[walk[i], walk[j]] += 1
    np.testing.assert_array_equal(label_walks.window_counts(walks, 2, 3).toarray(), expected)


def test_positive_pmi_by_hand():
    C = sp.csr_matrix(np.array([[0.0, 4.0], [4.0, 2.0]]))
    got = label_walks.positive_pmi(C).toarray()
    total = 10
    np.testing.assert_allclose(got[0, 1], math.log(4 * total / (4 * 6)))
    assert got[1, 1] == 0  # log(2 * 10 / 36) is negative
    assert got[0, 0] == 0


def test_embedding_reproduces_the_cosines_of_a_low_rank_matrix():
    rng = np.random.default_rng(3)
    factors = rng.normal(size=(12, 3))
    U = label_walks.embed(sp.csr_matrix(factors @ factors.T), 5, np.random.default_rng(0))
    assert U.shape == (12, 5)
    # M = F F^T = V S V^T, so U sqrt(S) is F turned: the same cosines.
    unit = factors / np.linalg.norm(factors, axis=1, keepdims=True)
    np.testing.assert_allclose(U @ U.T, unit @ unit.T, atol=1e-5)


def test_labels_that_occur_together_lie_close():
    block = np.kron(np.eye(2), np.ones((30, 3)))
    rng = np.random.default_rng(0)
    Y = sp.csr_matrix((block * (rng.random(block.shape) < 0.7)).astype(np.float32))
    assert label_graph(Y)[0, 4] == 0
    V = dxml.embed_labels(Y, DxmlParams(model="dxml", dim=4))
    cosine = V @ V.T
    assert cosine[0, 1] > 0.7
    assert abs(cosine[0, 4]) < 0.2


def test_targets_are_unit_means_of_label_vectors():
    V = np.array([[1.0, 0.0], [0.0, 1.0]])
    Y = sp.csr_matrix(np.array([[1, 0], [1, 1]], np.float32))
    root = 1 / math.sqrt(2)
    np.testing.assert_allclose(dxml.text_targets(Y, V), [[1, 0], [root, root]], rtol=1e-6)


def test_neighbours_are_those_of_a_full_sort_also_over_blocks(monkeypatch):
    monkeypatch.setattr(dxml, "BLOCK", 7)
    generator = torch.Generator().manual_seed(0)
    places, vectors = (torch.randn(n, 4, generator=generator) for n in (20, 3))
    found, likeness = nearest(vectors, places, 5)
    order = (vectors @ places.T).argsort(dim=1, descending=True)[:, :5]
    assert torch.equal(found, order)
    torch.testing.assert_close(likeness, (vectors @ places.T).gather(1, order))
    assert nearest(vectors, places[:2], 5)[0].shape == (3, 2)


def test_votes_weigh_neighbours_by_cosine():
    Y = sp.csr_matrix(np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]], np.float32))
    top = vote(np.array([[0, 1]]), np.array([[0.6, 0.2]]), Y, 3)
    np.testing.assert_array_equal(top.labels, [[0, 1, -1]])
    np.testing.assert_allclose(top.scores[0, :2], [1.0, 0.25])
    far = vote(np.array([[0, 2]]), np.array([[0.5, -0.9]]), Y, 3)
    assert far.labels[0, 0] == 0
    assert far.scores[0, 1] < 1e-4


def test_only_texts_with_a_label_become_neighbours():
    tokens, Y = topics(n=60)
    Y = Y.tolil()
    Y[:10] = 0
    model = fitted("dxml", tokens, sp.csr_matrix(Y, dtype=np.float32))
    assert isinstance(model, Dxml)
    assert len(model.places_) == 50
    assert model.Y_.shape == (50, 6)


# --- all of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RIVALS)
def test_a_label_without_a_training_text_is_never_given(name):
    top = fitted(name).predict(topics(n=20, seed=4)[0], 6).validate(6)
    assert not (top.labels == 5).any()


@pytest.mark.parametrize("name", RIVALS[:3])
@pytest.mark.parametrize("weighting", ["pw", "pwcb"])
def test_weights_of_positives_change_the_training(name, weighting):
    tokens, _ = topics(n=20, seed=4)
    plain, weighted = fitted(name, epochs=1), fitted(name, epochs=1, weighting=weighting)
    assert not np.array_equal(plain.predict(tokens, 3).scores, weighted.predict(tokens, 3).scores)


@pytest.mark.parametrize("name", RIVALS)
def test_a_validation_set_is_used_and_logged(name):
    seen = []
    tokens, Y = topics()
    params = parse({**SMALL, "model": name}, TransferParams, "test")
    valid = topics(n=40, seed=9)
    kinds = {"vocabulary_size": WORDS, "threads": 1, "valid": valid}
    fit(build(params), tokens, Y, **kinds, log=lambda numbers, epoch: seen.append((epoch, numbers)))
    epochs = 2 + (params.memory_epochs if name == "oltr" else 0)
    assert [epoch for epoch, _ in seen] == list(range(epochs))
    assert all(any(key.startswith("valid_") for key in numbers) for _, numbers in seen)


def test_a_folder_that_holds_no_transfer_model_is_a_clear_error(tmp_path):
    with pytest.raises(ModelError, match="missing"):
        load(tmp_path)
    (tmp_path / "params.json").write_text("{}")
    with pytest.raises(ModelError, match="names no model"):
        load(tmp_path)


def test_params_know_their_model_and_refuse_those_of_another():
    assert isinstance(parse({"model": "bbn"}, TransferParams, "x"), BbnParams)
    assert isinstance(parse({"model": "ltmcp", "C": 2.0}, TransferParams, "x"), LtmcpParams)
    with pytest.raises(ConfigError, match="neighbours: unknown parameter"):
        parse({"model": "bbn", "neighbours": 3}, TransferParams, "x")
    with pytest.raises(ConfigError, match="no cross-entropy"):
        parse({"model": "dxml", "weighting": "pw"}, TransferParams, "x")
    with pytest.raises(ConfigError, match="bnn"):
        parse({"model": "bnn"}, TransferParams, "x")
