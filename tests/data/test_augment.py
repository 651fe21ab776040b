"""Taug: the split, the two kinds of copies, what stays the same, and the borders."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from coattail.data.augment import (
    AugmentParams,
    augment,
    copies_of_each,
    drop_words,
    save,
    split_labels,
    swap_values,
    with_validation,
)
from coattail.data.features import Block, load_training, save_training
from coattail.errors import ConfigError, DataError


def random_problem(n=60, words=40, labels=10, seed=0):
    """Texts whose label frequencies fall from label 0 to the last one, which nobody has."""
    rng = np.random.default_rng(seed)
    X = sp.random(n, words, density=0.3, format="csr", dtype=np.float32, rng=rng)
    chance = np.append(0.5 / np.arange(1, labels), 0.0)
    return X, sp.csr_matrix((rng.random((n, labels)) < chance).astype(np.float32))


def test_split_takes_the_floor_of_tau_times_labels_and_ties_go_by_id():
    head, tail = split_labels(np.array([5, 9, 5, 1, 0]), tau=0.5)
    np.testing.assert_array_equal(head, [0, 1])
    np.testing.assert_array_equal(tail, [2, 3, 4])


def test_split_is_not_fooled_by_binary_fractions():
    head, _ = split_labels(np.zeros(100, int), tau=0.29)  # 0.29 * 100 = 28.999999999999996
    assert len(head) == 29


@pytest.mark.parametrize(
    ("settings_", "expected"),
    [
        ({"n_aug": 4}, (3, 3)),
        ({"n_aug": 4, "copies": "as_printed"}, (2, 2)),
        ({"n_aug": 3, "copies": "as_printed"}, (1, 2)),
        ({"n_aug": 5}, (3, 3)),
        ({"n_aug": 4, "swap": False}, (0, 3)),
        ({"n_aug": 4, "dropout": False, "copies": "as_printed"}, (4, 0)),
        ({"n_aug": 0}, (0, 0)),
        ({"swap": False, "dropout": False}, (0, 0)),
    ],
)
def test_number_of_copies_follows_the_reading_of_n_aug(settings_, expected):
    assert copies_of_each(AugmentParams(**settings_)) == expected


def test_blocks_hold_exactly_the_texts_with_a_label_of_the_block():
    X, Y = random_problem()
    head, tail = augment(X, Y, AugmentParams(tau=0.3, n_aug=0))
    np.testing.assert_array_equal(
        np.sort(np.concatenate([head.labels, tail.labels])), np.arange(10)
    )
    dense = Y.toarray()
    for block in (head, tail):
        rows = np.flatnonzero(dense[:, block.labels].any(axis=1))
        np.testing.assert_array_equal(block.X.toarray(), X.toarray()[rows])
        np.testing.assert_array_equal(block.Y.toarray(), dense[rows][:, block.labels])


@pytest.mark.parametrize(("copies", "times"), [("as_coded", 7), ("as_printed", 5)])
def test_only_the_tail_grows_and_copies_keep_their_labels(copies, times):
    X, Y = random_problem()
    plain = augment(X, Y, AugmentParams(tau=0.2, n_aug=0))
    grown = augment(X, Y, AugmentParams(tau=0.2, n_aug=4, copies=copies))
    assert grown[0].X.shape == plain[0].X.shape
    n = plain[1].X.shape[0]
    assert grown[1].X.shape[0] == times * n
    np.testing.assert_array_equal(grown[1].X[:n].toarray(), plain[1].X.toarray())
    for copy in range(times):
        part = grown[1].Y[copy * n : (copy + 1) * n]
        np.testing.assert_array_equal(part.toarray(), plain[1].Y.toarray())


def test_without_decoupling_one_block_has_all_texts_and_copies_with_full_labels():
    X, Y = random_problem()
    (block,) = augment(X, Y, AugmentParams(tau=0.2, n_aug=2, copies="as_printed", decouple=False))
    tail = split_labels(np.asarray(Y.sum(axis=0)).ravel(), 0.2)[1]
    rows = np.flatnonzero(Y.toarray()[:, tail].any(axis=1))
    assert block.X.shape[0] == X.shape[0] + 2 * len(rows)
    np.testing.assert_array_equal(block.Y[: X.shape[0]].toarray(), Y.toarray())
    np.testing.assert_array_equal(
        block.Y[X.shape[0] : X.shape[0] + len(rows)].toarray(), Y.toarray()[rows]
    )


def test_swap_equals_a_slow_loop_over_rows():
    X, _ = random_problem(n=12, words=9)
    fast = swap_values(X, 4, np.random.default_rng(3)).toarray()
    rng = np.random.default_rng(3)
    rows = [list(X[i].data) for i in range(X.shape[0])]
    able = [i for i, row in enumerate(rows) if len(row) >= 2]
    sizes = np.array([len(rows[i]) for i in able])
    for _ in range(4):
        firsts, seconds = rng.integers(0, sizes), rng.integers(0, sizes - 1)
        for i, first, second in zip(able, firsts, seconds, strict=True):
            other = second + 1 if second >= first else second
            rows[i][first], rows[i][other] = rows[i][other], rows[i][first]
    slow = np.zeros_like(fast)
    for i, row in enumerate(rows):
        slow[i, X[i].indices] = row
    np.testing.assert_array_equal(fast, slow)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 20))
def test_swap_permutes_the_values_of_each_row_and_keeps_its_words(seed, times):
    X, _ = random_problem(n=8, words=10, seed=seed)
    swapped = swap_values(X, times, np.random.default_rng(seed))
    np.testing.assert_array_equal(swapped.indices, X.indices)
    for i in range(X.shape[0]):
        np.testing.assert_array_equal(np.sort(swapped[i].data), np.sort(X[i].data))


def test_one_swap_exchanges_exactly_two_values():
    X = sp.csr_matrix(np.arange(1, 13, dtype=np.float32).reshape(2, 6))
    swapped = swap_values(X, 1, np.random.default_rng(0))
    np.testing.assert_array_equal((swapped.toarray() != X.toarray()).sum(axis=1), [2, 2])


def test_number_of_swaps_is_a_tenth_of_the_mean_words_of_tail_texts():
    # 30 words a text: 3 exchanges move at most 6 values; a single word more would be a 4th.
    X = sp.csr_matrix(np.tile(np.arange(1, 31, dtype=np.float32), (50, 1)))
    Y = sp.csr_matrix(np.ones((50, 1), np.float32))
    (block,) = augment(X, Y, AugmentParams(tau=0, n_aug=1, dropout=False))
    moved = (block.X[50:].toarray() != X.toarray()).sum(axis=1)
    assert moved.max() == 6
    assert moved.min() >= 2


def test_dropout_removes_a_tenth_of_the_words_and_changes_no_value():
    X = sp.csr_matrix(np.random.default_rng(1).random((400, 100), np.float32) + 0.1)
    dropped = drop_words(X, 0.1, np.random.default_rng(2))
    share = 1 - dropped.nnz / X.nnz
    assert abs(share - 0.1) < 4 * np.sqrt(0.1 * 0.9 / X.nnz)
    kept = dropped.toarray() != 0
    np.testing.assert_array_equal(dropped.toarray()[kept], X.toarray()[kept])
    # Independent draws: every word is lost in some texts and kept in others.
    assert ((~kept).sum(axis=0) > 0).all()
    assert (kept.sum(axis=0) > 0).all()


def test_rows_of_one_word_and_empty_rows_survive_both_techniques():
    X = sp.csr_matrix(np.array([[0, 2, 0], [0, 0, 0], [1, 0, 0]], np.float32))
    Y = sp.csr_matrix(np.ones((3, 1), np.float32))
    (block,) = augment(X, Y, AugmentParams(tau=0, n_aug=8, drop=0.9))
    np.testing.assert_array_equal(block.X.toarray(), np.tile(X.toarray(), (11, 1)))


@pytest.mark.parametrize("swap", [True, False])
def test_copies_differ_from_each_other(swap):
    X, Y = random_problem(n=80)
    (block,) = augment(X, Y, AugmentParams(tau=0, n_aug=4, swap=swap, dropout=not swap))
    n = block.X.shape[0] // 4
    copies = [block.X[i * n : (i + 1) * n].toarray() for i in range(4)]
    for i in range(4):
        for j in range(i):
            assert (copies[i] != copies[j]).any()


def test_same_seed_same_bytes_and_another_seed_differs():
    X, Y = random_problem()
    first, again, other = (augment(X, Y, AugmentParams(seed=s))[-1].X for s in (5, 5, 6))
    assert first.data.tobytes() == again.data.tobytes()
    assert first.indices.tobytes() == again.indices.tobytes()
    assert first.nnz != other.nnz or (first != other).nnz > 0


def test_inputs_are_not_changed():
    X, Y = random_problem()
    before = X.copy(), Y.copy()
    augment(X, Y, AugmentParams())
    np.testing.assert_array_equal(X.toarray(), before[0].toarray())
    np.testing.assert_array_equal(Y.toarray(), before[1].toarray())


def test_renormalise_gives_copies_unit_length_and_leaves_originals_alone():
    X, Y = random_problem()
    (block,) = augment(X, Y, AugmentParams(tau=0, n_aug=2, renormalise=True))
    lengths = np.sqrt(np.asarray(block.X.multiply(block.X).sum(axis=1)).ravel())
    n = int((np.diff(Y.indptr) > 0).sum())
    np.testing.assert_allclose(lengths[n:], 1, rtol=1e-5)
    assert (np.abs(lengths[:n] - 1) > 0.1).any()


def test_all_head_and_all_tail_give_one_block():
    X, Y = random_problem()
    (head,) = augment(X, Y, AugmentParams(tau=1))
    (tail,) = augment(X, Y, AugmentParams(tau=0))
    labelled = int((np.diff(Y.indptr) > 0).sum())
    assert (head.name, head.X.shape[0]) == ("head", labelled)
    assert (tail.name, tail.X.shape[0]) == ("tail", 7 * labelled)


def test_a_tail_without_any_text_joins_the_head():
    X, Y = random_problem()
    (block,) = augment(X, Y, AugmentParams(tau=0.9))  # only the unseen label is left for the tail
    assert block.name == "head"
    np.testing.assert_array_equal(block.labels, np.arange(10))


def test_a_head_of_one_label_is_named_since_it_has_no_negatives(caplog):
    X, Y = random_problem()
    augment(X, Y, AugmentParams(tau=0.1))
    assert "all texts of the head have 1 of its 1 labels" in caplog.text
    assert "raise tau" in caplog.text
    caplog.clear()
    augment(X, Y, AugmentParams(tau=0.1, decouple=False))
    augment(X, Y, AugmentParams(tau=0.3))
    assert caplog.text == ""


def test_given_counts_decide_the_split():
    X, Y = random_problem()
    head, _ = augment(X, Y, AugmentParams(tau=0.2), counts=np.arange(10))
    np.testing.assert_array_equal(head.labels, [8, 9])


def test_blocks_survive_the_disk(tmp_path):
    X, Y = random_problem()
    blocks = augment(X, Y, AugmentParams(n_aug=2))
    save_training(tmp_path, blocks)
    loaded = load_training(tmp_path, None)
    for block, back in zip(blocks, loaded, strict=True):
        assert block.name == back.name
        np.testing.assert_array_equal(block.labels, back.labels)
        assert (block.X != back.X).nnz == 0
        assert (block.Y != back.Y).nnz == 0


class Splits:
    """Features of two splits: validation has other texts than train."""

    def __init__(self, train, valid):
        self.splits = {"train": train, "valid": valid}

    def X(self, split):
        return self.splits[split][0]

    def Y(self, split):
        return self.splits[split][1]


def refitted(folder, train, valid, **settings_):
    """Blocks of train, and the same with validation texts behind them."""
    params = AugmentParams(**settings_)
    blocks = augment(*train, params)
    save(folder, blocks, params)
    return blocks, with_validation(folder, load_training(folder, None), Splits(train, valid))


def test_validation_texts_join_the_blocks_of_their_labels_and_tail_ones_are_copied(tmp_path):
    train, (X, Y) = random_problem(), random_problem(n=30, seed=1)
    blocks, longer = refitted(tmp_path, train, (X, Y), tau=0.2, n_aug=4)
    assert [block.name for block in longer] == ["head", "tail"]
    for block, long in zip(blocks, longer, strict=True):
        n, own = block.X.shape[0], np.flatnonzero(Y[:, block.labels].sum(axis=1).A1)
        assert 0 < len(own) < 30
        copies = 7 if block.name == "tail" else 1  # as for training texts: 3 swapped, 3 thinned
        assert long.X.shape[0] == long.Y.shape[0] == n + copies * len(own)
        assert (long.X[:n] != block.X).nnz == (long.Y[:n] != block.Y).nnz == 0
        assert (long.X[n : n + len(own)] != X[own]).nnz == 0
        for copy in range(copies):
            first = n + copy * len(own)
            labels = long.Y[first : first + len(own)]
            assert (labels != Y[own][:, block.labels]).nnz == 0
        assert all(np.diff(long.Y.indptr) > 0)


def test_copies_of_validation_texts_draw_numbers_of_their_own(tmp_path):
    train = random_problem()
    blocks, longer = refitted(tmp_path, train, train, tau=0.2)
    n = blocks[1].X.shape[0]
    own, again = longer[1].X[:n], longer[1].X[n:]
    texts = n // 7
    assert (own[:texts] != again[:texts]).nnz == 0
    assert (own[texts:] != again[texts:]).nnz > 0


def test_validation_texts_of_an_undivided_problem_all_come_and_tail_ones_are_copied(tmp_path):
    train, (X, Y) = random_problem(), random_problem(n=30, seed=1)
    blocks, (longer,) = refitted(tmp_path, train, (X, Y), tau=0.2, decouple=False)
    _, tail = split_labels(np.bincount(train[1].indices, minlength=10), 0.2)
    n, rare = blocks[0].X.shape[0], int((Y[:, tail].sum(axis=1).A1 > 0).sum())
    assert longer.X.shape[0] == n + 30 + 6 * rare
    assert (longer.X[n : n + 30] != X).nnz == (longer.Y[n : n + 30] != Y).nnz == 0


def test_validation_without_a_rare_label_leaves_the_tail_as_it_was(tmp_path):
    train, (X, Y) = random_problem(), random_problem(n=30, seed=1)
    Y = Y.tolil()
    Y[:, 2:] = 0
    blocks, longer = refitted(tmp_path, train, (X, sp.csr_matrix(Y)), tau=0.2)
    assert longer[1].X.shape == blocks[1].X.shape
    assert longer[0].X.shape[0] > blocks[0].X.shape[0]


def test_plain_tf_idf_gets_every_validation_text(tmp_path):
    train, (X, Y) = random_problem(), random_problem(n=30, seed=1)
    plain = [Block("all", *train, np.arange(10, dtype=np.int32))]
    (longer,) = with_validation(tmp_path, plain, Splits(train, (X, Y)))
    assert (longer.X[60:] != X).nnz == (longer.Y[60:] != Y).nnz == 0
    assert longer.X.shape[0] == 90


def test_blocks_that_do_not_say_how_they_were_made_are_a_clear_error(tmp_path):
    train = random_problem()
    blocks = augment(*train, AugmentParams())
    save_training(tmp_path, blocks)
    with pytest.raises(DataError, match=r"augment.json is missing; run dvc repro augment_tails"):
        with_validation(tmp_path, blocks, Splits(train, train))


def test_no_label_at_all_and_unequal_rows_are_clear_errors():
    X, Y = random_problem()
    with pytest.raises(DataError, match="nothing to augment"):
        augment(X, sp.csr_matrix(Y.shape, dtype=np.float32), AugmentParams())
    with pytest.raises(DataError, match="60 texts but Y has 59"):
        augment(X, Y[:-1], AugmentParams())


def test_parameters_out_of_range_are_refused():
    from coattail.config import parse

    for bad in ({"tau": 1.5}, {"drop": 1.0}, {"n_aug": -1}, {"copies": "twice"}, {"taug": 1}):
        with pytest.raises(ConfigError):
            parse(bad, AugmentParams, "augment_tails.x")
