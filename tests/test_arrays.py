"""TopK, the CSR gate, and folders that are written whole or not at all."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from coattail.arrays import (
    Ragged,
    TopK,
    as_csr,
    best_first,
    load_csr,
    load_ragged,
    parts,
    save_csr,
    save_ragged,
    topk_of_csr,
    unit_rows,
)
from coattail.errors import DataError
from coattail.files import atomic_file, atomic_folder


def slow_topk(dense, stored, k):
    labels = np.full((len(dense), k), -1)
    scores = np.full((len(dense), k), -np.inf)
    for i in range(len(dense)):
        order = sorted(np.flatnonzero(stored[i]), key=lambda j: (-dense[i, j], j))[:k]
        labels[i, : len(order)] = order
        scores[i, : len(order)] = dense[i, order]
    return labels, scores


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 6), st.integers(1, 7), st.integers(1, 9))
def test_topk_of_csr_equals_sorting_each_row(seed, n, n_labels, k):
    rng = np.random.default_rng(seed)
    stored = rng.random((n, n_labels)) < 0.6
    dense = rng.integers(-2, 3, (n, n_labels)).astype(np.float32)
    rows, columns = np.nonzero(stored)
    S = sp.csr_matrix((dense[rows, columns], (rows, columns)), shape=(n, n_labels))
    labels, scores = slow_topk(dense, stored, k)
    top = topk_of_csr(S, k).validate(n_labels)
    np.testing.assert_array_equal(top.labels, labels)
    np.testing.assert_array_equal(top.scores, scores)


def test_best_first_breaks_ties_by_label_and_pads():
    labels = np.array([[5, 2, -1, 9]])
    scores = np.array([[0.5, 0.5, 7.0, 0.9]])
    top = best_first(labels, scores, 5).validate()
    assert top.labels.tolist() == [[9, 2, 5, -1, -1]]
    assert top.scores[0, 3:].tolist() == [-np.inf, -np.inf]


def test_head_cuts_and_pads():
    top = TopK(np.array([[3, 1]], np.int32), np.array([[2.0, 1.0]], np.float32), "margin")
    assert top.head(1).labels.tolist() == [[3]]
    assert top.head(3).labels.tolist() == [[3, 1, -1]]
    assert top.head(3).kind == "margin"


def reranked():
    """Scores that order, probabilities in another order beside them, and one padded place."""
    return TopK(
        np.array([[3, 1, -1], [2, 0, 1]], np.int32),
        np.array([[7.0, -2.0, -np.inf], [0.5, 0.5, 0.1]], np.float32),
        "score",
        probability=np.array([[0.25, 1.0, 0.0], [0.0, 0.5, 0.75]], np.float32),
    )


def test_probabilities_beside_the_scores_are_cut_padded_and_copied_with_them():
    top = reranked().validate(4)
    assert top.head(2).probability.tolist() == [[0.25, 1.0], [0.0, 0.5]]
    longer = top.head(4).validate(4)
    assert longer.probability[:, 3].tolist() == [0, 0]
    assert longer.labels[:, 3].tolist() == [-1, -1]
    assert np.isneginf(longer.scores[:, 3]).all()
    assert top.rows(slice(1, 2)).probability.tolist() == [[0.0, 0.5, 0.75]]
    assert not np.shares_memory(top.copy().probability, top.probability)


def test_probabilities_are_saved_where_there_are_any(tmp_path):
    for name, top in (("with", reranked()), ("without", TopK(*(2 * [np.zeros((1, 0))])))):
        top.save(tmp_path / f"{name}.npz")
    again = TopK.load(tmp_path / "with.npz")
    assert again.kind == "score"
    assert again.probability.dtype == np.float32
    np.testing.assert_array_equal(again.probability, reranked().probability)
    with np.load(tmp_path / "without.npz") as content:
        assert "probability" not in content.files
    assert TopK.load(tmp_path / "without.npz").probability is None


def test_confidence_is_the_stated_probability_whatever_orders_the_list():
    labels, scores = np.array([[1, -1]], np.int32), np.array([[0.5, -np.inf]], np.float32)
    assert TopK(labels, scores).confidence.tolist() == [[0.5, 0]]
    assert TopK(labels, scores, "margin").confidence is None
    assert TopK(labels, scores, "score").confidence is None
    assert reranked().confidence.tolist() == reranked().probability.tolist()


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [(0, 1.5, "not in"), (0, -0.1, "not in"), (0, np.nan, "not in"), (2, 0.5, "padding")],
)
def test_validate_names_a_probability_that_is_none(column, value, message):
    top = reranked()
    top.probability[0, column] = value
    with pytest.raises(DataError, match=message):
        top.validate(4)


def test_probabilities_that_cannot_be_are_refused(tmp_path):
    labels, scores = np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)
    with pytest.raises(DataError, match="its scores are the probabilities"):
        TopK(labels, scores, "probability", probability=scores)
    with pytest.raises(DataError, match="probabilities of shape"):
        TopK(labels, scores, "score", probability=scores[0])
    with pytest.raises(DataError, match="kind 'votes'; wanted probability, margin, score"):
        TopK(labels, scores, "votes")
    np.savez(tmp_path / "votes.npz", labels=labels, scores=scores, kind=np.array("votes"))
    with pytest.raises(DataError, match=r"votes.npz is not a saved ranking: .*kind 'votes'"):
        TopK.load(tmp_path / "votes.npz")


def test_to_csr_and_back_is_the_same_ranking():
    top = TopK(
        np.array([[3, 0, -1], [-1, -1, -1]], np.int32),
        np.array([[2.0, 0.0, -np.inf], [-np.inf] * 3], np.float32),
    )
    again = topk_of_csr(top.to_csr(5), 3)
    np.testing.assert_array_equal(again.labels, top.labels)


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([[-1, 2]], [[0, 1]], "padding"),
        ([[1, 2]], [[0, 1]], "increase"),
        ([[1, 2]], [[np.nan, 0]], "finite"),
        ([[7]], [[0]], "label 7"),
    ],
)
def test_validate_names_the_broken_promise(labels, scores, message):
    top = TopK(np.array(labels, np.int32), np.array(scores, np.float32))
    with pytest.raises(DataError, match=message):
        top.validate(5)


def test_shapes_that_differ_are_refused():
    with pytest.raises(DataError, match="two"):
        TopK(np.zeros((2, 3), np.int32), np.zeros((2, 2), np.float32))


def test_a_saved_ranking_comes_back_and_a_broken_one_says_so(tmp_path):
    top = TopK(np.array([[1]], np.int32), np.array([[0.5]], np.float32), "margin")
    top.save(tmp_path / "deep" / "r.npz")
    again = TopK.load(tmp_path / "deep" / "r.npz")
    assert again.kind == "margin"
    assert again.labels.tolist() == [[1]]
    with pytest.raises(DataError, match="missing"):
        TopK.load(tmp_path / "no.npz")
    (tmp_path / "bad.npz").write_bytes(b"PK nonsense")
    with pytest.raises(DataError, match="not a saved ranking"):
        TopK.load(tmp_path / "bad.npz")


def test_gate_leaves_the_input_untouched_and_sums_duplicates():
    M = sp.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), (2, 3))
    before = M.data.copy()
    out = as_csr(M)
    assert out.dtype == np.float32
    assert out.toarray().tolist() == [[0, 3, 0], [3, 0, 0]]
    np.testing.assert_array_equal(M.data, before)


def test_gate_does_not_copy_what_is_canonical():
    M = sp.csr_matrix(np.eye(3, dtype=np.float32))
    M.sum_duplicates()
    assert np.shares_memory(as_csr(M).data, M.data)


def test_gate_names_the_row_that_is_not_finite():
    M = sp.csr_matrix(np.array([[1.0, 0], [0, np.nan], [1, 1]]))
    with pytest.raises(DataError, match="row 1"):
        as_csr(M, "X")


def test_csr_folder_is_memory_mapped_and_equal(tmp_path):
    M = sp.random(20, 9, 0.3, "csr", np.float32, random_state=1)
    save_csr(tmp_path / "m", M)
    again = load_csr(tmp_path / "m")
    assert (again != M).nnz == 0
    assert not again.data.flags.writeable
    assert parts(again).indptr.dtype == np.int64


def test_csr_folder_without_a_part_says_which(tmp_path):
    save_csr(tmp_path / "m", sp.csr_matrix((2, 2), dtype=np.float32))
    (tmp_path / "m" / "data.npy").unlink()
    with pytest.raises(DataError, match=r"data\.npy"):
        load_csr(tmp_path / "m")


def test_ragged_rows_take_and_round_trip(tmp_path):
    tokens = Ragged(np.array([0, 2, 2, 5]), np.array([4, 5, 6, 7, 8], np.int32))
    assert tokens.take(np.array([2, 0, 1, 2])).values.tolist() == [6, 7, 8, 4, 5, 6, 7, 8]
    assert tokens.take(np.array([], int)).n == 0
    save_ragged(tmp_path / "t", tokens)
    assert load_ragged(tmp_path / "t").row(2).tolist() == [6, 7, 8]


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path):
    path = tmp_path / "f"
    path.write_text("old")

    def write_badly():
        with atomic_file(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_badly()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_failed_folder_leaves_the_old_one(tmp_path):
    with atomic_folder(tmp_path / "m") as folder:
        (folder / "a").write_text("1")

    def write_badly():
        with atomic_folder(tmp_path / "m") as folder:
            (folder / "b").write_text("2")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_badly()
    assert [p.name for p in (tmp_path / "m").iterdir()] == ["a"]
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_unit_rows_have_length_one_also_across_chunks():
    rng = np.random.default_rng(5)
    lengths = rng.integers(0, 900, 3000)  # more than a chunk of 2**20 values, some rows empty
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    values = rng.normal(size=indptr[-1]).astype(np.float32)
    values[indptr[7] : indptr[8]] = 0.0  # a row of stored zeros
    M = sp.csr_matrix((values, indices, indptr), shape=(3000, 900))
    unit = unit_rows(M)
    dense = M.toarray().astype(np.float64)
    size = np.linalg.norm(dense, axis=1, keepdims=True)
    np.testing.assert_allclose(unit.toarray(), dense / np.where(size > 0, size, 1.0), atol=1e-7)
    assert unit.dtype == np.float32
    assert unit_rows(sp.csr_matrix((2, 3))).nnz == 0
