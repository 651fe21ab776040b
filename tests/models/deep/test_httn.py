"""HTTN: the network's promises, the model contract, and labels added without training."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from coattail.arrays import Ragged
from coattail.config import parse
from coattail.data.text import PAD
from coattail.errors import DataError, ModelError
from coattail.evaluation import metrics
from coattail.models.deep import batching
from coattail.models.deep.transfer import prototypes
from coattail.models.deep.transfer.encoder_net import HttnNet
from coattail.models.deep.transfer.httn import Httn
from coattail.models.deep.transfer.transfer_params import HttnParams, JointParams, TransferParams
from coattail.testing.model_contract import digest
from coattail.testing.network_contract import fit

SMALL = {"dim": 8, "hidden": 8, "embedding_dim": 8, "sets": 5, "t": 3, "batch": 16, "lr": 0.01}
WORDS = 40


def ragged(texts):
    indptr = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    values = np.concatenate([*texts, []]).astype(np.int32)
    return Ragged(indptr, values)


def topics(n=240, labels=8, seed=0):
    """Label j is told by words 2 + 4j to 5 + 4j; label 0 is the most frequent, 7 is unseen."""
    rng = np.random.default_rng(seed)
    share = np.array([0.3, 0.2, 0.15, 0.12, 0.1, 0.08, 0.05, 0.0])[:labels]
    truth = rng.choice(labels, size=n, p=share / share.sum())
    texts = [2 + 4 * label + rng.integers(0, 4, rng.integers(3, 9)) for label in truth]
    return ragged(texts), sp.csr_matrix(np.eye(labels, dtype=np.float32)[truth])


def fitted(seed=0, **settings):
    tokens, Y = topics()
    usual = {**SMALL, "model": "httn", "epochs": 8, "head_count": 5, "seed": seed}
    params = parse(usual | settings, TransferParams, "test")
    return fit(Httn(params), tokens, Y, vocabulary_size=WORDS, threads=1)


@pytest.fixture(scope="module")
def model():
    return fitted()


# --- batches and the network ---------------------------------------------------------------------


def padded(texts, max_tokens=99):
    rows = np.arange(len(texts))
    return batching.pad(ragged(texts), rows, max_tokens, "cpu", multiple=1, empty=PAD)


def test_a_batch_is_cut_and_as_wide_as_its_longest_text():
    batch = padded([[3, 4, 5, 6], [], [7], [8, 9]], 3)
    assert batch.ids.tolist() == [[3, 4, 5], [0, 0, 0], [7, 0, 0], [8, 9, 0]]
    assert batch.lengths.tolist() == [3, 1, 1, 2]
    assert (batch.rest.tolist(), batch.rest_of.tolist()) == ([6], [0])


def test_batches_of_an_epoch_are_the_same_whichever_is_asked_for_first():
    lengths = np.random.default_rng(0).integers(0, 9, 50)
    whole = batching.Shuffles(lengths, 4, [3, 1], pool=2)
    epochs = [[rows.tolist() for rows in whole(epoch)] for epoch in range(4)]
    assert epochs[0] != epochs[1]
    assert all(sorted(chain(*batches)) == list(range(50)) for batches in epochs)
    resumed = batching.Shuffles(lengths, 4, [3, 1], pool=2)
    assert [[rows.tolist() for rows in resumed(epoch)] for epoch in (2, 3, 0)] == [
        epochs[2],
        epochs[3],
        epochs[0],
    ]


def test_a_text_has_the_same_unit_vector_whatever_its_neighbours_are():
    params = HttnParams(**SMALL)
    words = torch.randn(WORDS, 8, generator=torch.Generator().manual_seed(0))
    net = HttnNet(params, words).eval()
    texts = [[3, 4], [5, 6, 7, 8, 9, 10, 11], [12]]
    together = padded(texts)
    with torch.inference_mode():
        vectors = net.unit_vectors(together)
        for row, vector in zip(together.rows, vectors, strict=True):
            alone = net.unit_vectors(padded([texts[row]]))[0]
            torch.testing.assert_close(alone, vector)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))


def test_the_order_of_words_matters_to_the_network():
    words = torch.randn(WORDS, 8, generator=torch.Generator().manual_seed(0))
    net = HttnNet(HttnParams(**SMALL), words).eval()
    one, two = padded([[3, 4, 5]]), padded([[5, 4, 3]])
    assert not torch.allclose(net.unit_vectors(one), net.unit_vectors(two))


def test_building_a_network_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    HttnNet(HttnParams(**SMALL), torch.zeros(WORDS, 8))
    assert torch.equal(before, torch.get_rng_state())


# --- the contract --------------------------------------------------------------------------------


def test_head_labels_are_learned(model):
    tokens, Y = topics(seed=1)
    top = model.predict(tokens, 8).validate(8)
    head = Y.indices < 5
    assert (top.labels[:, 0] == Y.indices)[head].mean() > 0.9


def pairs(seed, n=700):
    """Label (a, b), one of 28, is told by words of both of two topics out of eight."""
    rng = np.random.default_rng(seed)
    kinds = [(a, b) for a in range(8) for b in range(a)]  # 28 labels
    share = 1 / np.arange(1, 29) ** 0.5
    truth = rng.choice(28, size=n, p=share / share.sum())
    texts = []
    for label in truth:
        parts = np.array(kinds[label])[rng.integers(0, 2, 8)]
        texts.append(2 + 4 * parts + rng.integers(0, 4, 8))
    return ragged(texts), sp.csr_matrix(np.eye(28, dtype=np.float32)[truth])


def test_tail_labels_that_were_never_trained_are_told_apart():
    tokens, Y = pairs(0)
    params = HttnParams(**SMALL, epochs=10, head_count=20)
    tail = prototypes.split_labels(Y, params)[1]
    model = fit(Httn(params), tokens, Y, vocabulary_size=WORDS, threads=1)
    tokens, Y = pairs(1)
    rows = np.flatnonzero(np.isin(Y.indices, tail))
    scores = model.predict(tokens.take(rows), 28).to_csr(28).toarray()
    best = tail[scores[:, tail].argmax(axis=1)]
    assert (best == Y.indices[rows]).mean() > 0.5  # by chance 1 of 8


def test_a_label_without_a_training_text_is_never_given(model):
    top = model.predict(topics(seed=1)[0], 8)
    assert not (top.labels == 7).any()
    assert (top.labels[:, 7] == -1).all()
    assert np.isneginf(top.scores[:, 7]).all()


def test_k_beyond_the_labels_is_padded(model):
    top = model.predict(topics(n=5, seed=2)[0], 20)
    assert top.labels.shape == (5, 20)
    assert (top.labels[:, 7:] == -1).all()


def test_empty_texts_get_finite_scores(model):
    top = model.predict(ragged([[], [2, 3]]), 3)
    assert np.isfinite(top.scores).all()


def test_no_texts_give_no_rows(model):
    assert model.predict(ragged([]), 3).labels.shape == (0, 3)


def test_same_seed_same_bytes_and_another_seed_differs(model):
    tokens, _ = topics(n=30, seed=3)
    again, other = fitted(), fitted(seed=1)
    first = model.predict(tokens, 5).scores.tobytes()
    assert first == again.predict(tokens, 5).scores.tobytes()
    assert first != other.predict(tokens, 5).scores.tobytes()


@pytest.mark.parametrize("settings", [{}, {"ensemble": 2}, {"model": "joint"}])
def test_save_and_load_agree_bit_for_bit(tmp_path, settings):
    model = fitted(epochs=1, **settings)
    model.save(tmp_path / "m")
    back = Httn.load(tmp_path / "m")
    tokens, _ = topics(n=30, seed=3)
    first, second = model.predict(tokens, 5), back.predict(tokens, 5)
    assert first.labels.tobytes() == second.labels.tobytes()
    assert first.scores.tobytes() == second.scores.tobytes()
    assert back.label_names_ == model.label_names_
    assert back.params == model.params


def test_validation_keeps_the_best_epoch_and_numbers_are_logged():
    tokens, Y = topics()
    seen = []
    params = HttnParams(**SMALL, epochs=3, head_count=5)
    valid = topics(seed=5)
    model = fit(
        Httn(params),
        *(tokens, Y),
        vocabulary_size=WORDS,
        valid=valid,
        threads=1,
        log=lambda numbers, epoch: seen.append((epoch, numbers)),
    )
    assert [epoch for epoch, _ in seen] == [0, 1, 2]
    best = max(numbers["valid_ndcg_at_5"] for _, numbers in seen)
    head = Httn(params)  # the same network asked for head labels only
    head.net_, head.M_ = model.net_, model.M_[:, :5]
    rows = np.flatnonzero(valid[1].indices < 5)
    cut = valid[1][rows][:, :5].tocsr()
    judged = metrics.judge(head.predict(valid[0].take(rows), 5), cut)
    assert judged.ratio("ndcg", 5).percent == pytest.approx(best)


def test_given_word_vectors_are_used():
    vectors = np.random.default_rng(0).normal(size=(WORDS, 5)).astype(np.float32)
    tokens, Y = topics(n=40)
    params = HttnParams(**SMALL, epochs=1, head_count=3)
    model = fit(Httn(params), tokens, Y, vocabulary_size=WORDS, vectors=vectors, threads=1)
    assert model.net_.word_dim == 5


@pytest.mark.parametrize(
    "settings",
    [
        {"learner": "ridge"},
        {"attention": False},
        {"finetune": True},
        {"ensemble": 3},
        {"model": "joint"},
        {"model": "imprinting"},
        {"head_share": 1.0, "head_count": None},
        {"head_count": 1},
        {"embedding_start": "random"},
        {"dropout": 0.0},
        {"offset": False},
        {"weighting": "pwcb"},
    ],
)
def test_every_switch_trains_and_ranks(settings):
    top = fitted(epochs=1, **settings).predict(topics(n=20, seed=4)[0], 7).validate(8)
    assert (top.labels >= 0).all()
    assert top.scores.min() >= 0
    assert top.scores.max() <= 1


def test_imprinted_rows_are_the_prototypes_beside_head_rows_of_unit_length():
    model = fitted(epochs=2, model="imprinting", t=99)
    torch.testing.assert_close(model.M_[0, :7].norm(dim=1), torch.ones(7))
    tokens, Y = topics()
    tail = np.array([5, 6])
    vectors = model._vectors(tokens)
    for label in tail:
        mean = vectors[Y[:, label].toarray().ravel() > 0].mean(axis=0)
        expected = mean / np.linalg.norm(mean)
        np.testing.assert_allclose(model.M_[0, label].numpy(), expected, atol=1e-5)


def test_the_offset_starts_at_the_log_odds_and_is_learned_only_if_wanted():
    tokens, Y = topics()
    model = Httn(JointParams(**SMALL, lr_top=1e-9, epochs=1))
    fit(model, tokens, Y, vocabulary_size=WORDS, threads=1)
    seen = Y[:, :7]
    odds = seen.nnz / (seen.shape[0] * seen.shape[1] - seen.nnz)
    assert float(model.net_.offset.detach()) == pytest.approx(np.log(odds), abs=1e-6)
    assert float(fitted(epochs=1).net_.offset.detach()) != pytest.approx(np.log(odds), abs=1e-6)
    assert float(fitted(epochs=1, offset=False).net_.offset.detach()) == 0


def test_prototypes_and_transfer_that_are_done_are_not_made_again(tmp_path, monkeypatch):
    tokens, Y = topics()
    params = HttnParams(**SMALL, epochs=2, head_count=5, finetune=True, dropout=0.3)
    epochs = []

    def train():
        log = lambda numbers, epoch: epochs.append(epoch)  # noqa: E731
        given = {"vocabulary_size": WORDS, "threads": 1, "log": log}
        return fit(Httn(params), tokens, Y, **given, checkpoint=tmp_path / "some.ckpt")

    class Killed(Exception):
        pass

    def killed(*_):
        raise Killed

    learn = prototypes.learn_transfer
    with monkeypatch.context() as patch:
        patch.setattr(prototypes, "learn_transfer", killed)
        with pytest.raises(Killed):
            train()
    assert epochs == [0, 1]
    done = []
    monkeypatch.setattr(
        prototypes, "learn_transfer", lambda *given: done.append(1) or learn(*given)
    )
    with monkeypatch.context() as patch:
        patch.setattr(Httn, "_vectors", killed)
        with pytest.raises(Killed):  # those of before fine-tuning are there
            train()
    assert epochs == [0, 1, 2, 3]
    assert len(done) == 1
    resumed = train()
    assert epochs == [0, 1, 2, 3]
    assert len(done) == 2
    whole = fit(Httn(params), tokens, Y, vocabulary_size=WORDS, threads=1)
    resumed.save(tmp_path / "resumed")
    whole.save(tmp_path / "whole")
    assert digest(tmp_path / "resumed") == digest(tmp_path / "whole")


def test_fine_tuning_changes_head_and_tail_rows():
    plain, tuned = fitted(epochs=1), fitted(epochs=1, finetune=True)
    moved = (plain.M_ != tuned.M_).any(dim=2)[0]
    assert moved[:7].all()


def test_after_fine_tuning_prototypes_and_transfer_are_those_of_the_tuned_encoder():
    tokens, Y = topics()
    tuned = fitted(epochs=2, finetune=True, finetune_lr=0.05, finetune_epochs=4)
    vectors = tuned._vectors(tokens)
    heads = np.stack([prototypes.prototypes(vectors, one) for one in tuned.head_samples_])
    np.testing.assert_allclose(tuned.heads_, heads, rtol=1e-5, atol=1e-6)
    head, _ = prototypes.split_labels(Y, tuned.params)
    rows = tuned.M_[0, head].numpy().astype(np.float64)
    wanted = prototypes.learn_transfer(heads, rows, tuned.params)
    np.testing.assert_allclose(tuned.W_, wanted, rtol=1e-4, atol=1e-5)


def test_an_ensemble_averages_probabilities_of_different_tail_samples():
    model = fitted(epochs=1, ensemble=2)
    torch.testing.assert_close(model.M_[0, :5], model.M_[1, :5])
    assert not torch.allclose(model.M_[0, 5:7], model.M_[1, 5:7])
    tokens, _ = topics(n=4, seed=4)
    both = model.predict(tokens, 7).to_csr(8).toarray()
    parts = []
    for member in range(2):
        one = Httn(model.params)
        one.net_, one.M_ = model.net_, model.M_[member : member + 1]
        parts.append(one.predict(tokens, 7).to_csr(8).toarray())
    np.testing.assert_allclose(both, (parts[0] + parts[1]) / 2, atol=1e-6)


# --- adding labels -------------------------------------------------------------------------------


def new_topic(n, seed):
    """Texts of words that tell label 1, to be added under another name."""
    rng = np.random.default_rng(seed)
    return ragged([rng.integers(6, 10, 6) for _ in range(n)])


def test_an_added_label_is_ranked_and_changes_nothing_else(tmp_path):
    model = fitted()
    tokens, Y = topics(n=40, seed=6)
    before = model.predict(tokens, 8).to_csr(9).toarray()
    assert model.add_label("fresh", new_topic(3, 0)) == 8
    after = model.predict(tokens, 9).to_csr(9).toarray()
    # Equal but for rounding: one more column is another matrix product.
    np.testing.assert_allclose(after[:, :8], before[:, :8], rtol=1e-5)
    model.save(tmp_path / "m")
    back = Httn.load(tmp_path / "m")
    assert back.label_names_[8] == "fresh"
    own = back.predict(new_topic(20, 1), 9).to_csr(9).toarray()
    assert own[:, 8].min() > after[Y.indices != 1, 8].max()


def test_an_added_row_is_the_transfer_of_its_prototype(model):
    import copy

    grown = copy.deepcopy(model)
    texts = new_topic(2, 0)
    grown.add_label("fresh", texts)
    mean = model._vectors(texts).astype(np.float64).mean(axis=0, keepdims=True)
    prototype = mean / np.linalg.norm(mean)
    heads = model.heads_.astype(np.float64)
    row = prototypes.tail_rows(prototype, heads, model.W_, model.params)
    np.testing.assert_allclose(grown.M_[0, 8].numpy(), row[0], rtol=1e-5, atol=1e-6)


def test_adding_a_label_that_exists_is_a_clear_error():
    tokens, Y = topics(n=60)
    params = HttnParams(**SMALL, epochs=1, head_count=3)
    names = [f"label-{i}" for i in range(8)]
    model = fit(Httn(params), tokens, Y, vocabulary_size=WORDS, label_names=names, threads=1)
    with pytest.raises(ModelError, match=r"'label-2' exists \(id 2\)"):
        model.add_label("label-2", new_topic(2, 0))
    model.add_label("fresh", new_topic(2, 0))
    with pytest.raises(ModelError, match="'fresh' exists"):
        model.add_label("fresh", new_topic(2, 0))


def test_adding_without_texts_or_to_a_joint_model_is_a_clear_error(model):
    with pytest.raises(DataError, match="at least one"):
        model.add_label("fresh", ragged([]))
    with pytest.raises(ModelError, match="joint model"):
        fitted(epochs=1, model="joint").add_label("fresh", new_topic(1, 0))


# --- mistakes ------------------------------------------------------------------------------------


def test_mistakes_are_clear_errors(model, tmp_path):
    tokens, Y = topics(n=20)
    params = HttnParams(**SMALL)
    with pytest.raises(DataError, match="20 texts but 19 rows"):
        fit(Httn(params), tokens, Y[:-1], vocabulary_size=WORDS)
    with pytest.raises(DataError, match="nothing to learn"):
        fit(Httn(params), tokens, sp.csr_matrix(Y.shape, dtype=np.float32), vocabulary_size=WORDS)
    with pytest.raises(DataError, match="the vocabulary has 5 words"):
        fit(Httn(params), tokens, Y, vocabulary_size=5)
    with pytest.raises(DataError, match="word vectors"):
        fit(Httn(params), tokens, Y, vocabulary_size=WORDS, vectors=np.zeros((3, 4)))
    with pytest.raises(DataError, match="label names"):
        fit(Httn(params), tokens, Y, vocabulary_size=WORDS, label_names=["a"])
    with pytest.raises(DataError, match="the vocabulary has 40 words"):
        model.predict(ragged([[99]]), 1)
    with pytest.raises(ModelError, match="is missing"):
        Httn.load(tmp_path)
