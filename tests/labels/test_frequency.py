"""Counts, propensities, bands, bins and weights against values worked out by hand."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from coattail.errors import DataError
from coattail.labels import frequency

HEAD, TORSO, TAIL = 0, 1, 2


def test_counts_are_texts_per_label_and_stored_zeros_count_nothing():
    Y = sp.csr_matrix(np.array([[1, 0, 1], [1, 0, 0], [1, 0, 1]], np.float32))
    Y.data[1] = 0  # label 2 of the first text
    assert frequency.counts(Y).tolist() == [3, 0, 1]
    assert frequency.counts(Y).dtype == np.int64


def test_inverse_propensity_by_hand():
    # N = e^3, A = 1, B = 1: C = (3 - 1) * 2 = 4 and q = 1 + 4 / (n + 1).
    q = frequency.inverse_propensity([0, 1, 3, 7], round(math.e**3), A=1.0, B=1.0)
    C = (math.log(20) - 1) * 2
    assert q == pytest.approx([1 + C, 1 + C / 2, 1 + C / 4, 1 + C / 8])


def test_inverse_propensity_has_the_published_values_of_eurlex():
    q = frequency.inverse_propensity([0, 1, 10, 100, 1000], 15_539)
    assert q == pytest.approx([12.45, 9.65, 4.7, 2.13, 1.32], abs=0.05)


@pytest.mark.parametrize("n_texts", [0, 1, 2])
def test_inverse_propensity_of_a_tiny_set_is_one_and_not_less(n_texts):
    assert frequency.inverse_propensity([0, 1], n_texts).tolist() == [1.0, 1.0]


def test_bands_by_hand():
    # 100 positives; 50 + 10 reach 60 %, the last 10 % are 6 + 4 and the label nobody has.
    counts = [4, 50, 0, 20, 10, 10, 6]
    assert frequency.bands(counts).tolist() == [TAIL, HEAD, TAIL, HEAD, TORSO, TORSO, TAIL]


def test_the_label_that_crosses_the_head_share_is_head_and_the_tail_never_exceeds_its_share():
    counts = [5, 5, 5, 5]
    # 60 % of 20 is 12: three labels are needed. 10 % is 2: no label is that rare.
    assert frequency.bands(counts).tolist() == [HEAD, HEAD, HEAD, TORSO]
    assert frequency.bands(counts, head_share=0.5, tail_share=0.5).tolist() == [
        HEAD,
        HEAD,
        TAIL,
        TAIL,
    ]


def test_labels_that_were_never_seen_are_tail_even_if_all_are():
    assert frequency.bands([0, 0]).tolist() == [TAIL, TAIL]
    assert frequency.bands([]).tolist() == []


def test_overlapping_shares_are_refused():
    with pytest.raises(DataError, match=r"head_share 0\.8 and tail_share 0\.3 overlap"):
        frequency.bands([1, 2], head_share=0.8, tail_share=0.3)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=30))
def test_bands_never_put_a_rarer_label_into_a_more_frequent_band(counts):
    band, n = frequency.bands(counts), np.array(counts)
    order = np.argsort(-n, kind="stable")
    assert np.all(np.diff(band[order].astype(int)) >= 0)
    if n.sum():
        assert n[band == HEAD].sum() >= 0.6 * n.sum() - 1e-6
        assert n[band == TAIL].sum() <= 0.1 * n.sum() + 1e-6


def test_frequency_bins_have_the_edges_and_names_of_the_tables():
    names = ("0", "1-2", "3-5", "6-10", "11-20", "21-50", "51-100", "101-1000", ">=1001")
    assert names == frequency.BINS
    counts = [0, 1, 2, 3, 5, 6, 10, 11, 20, 21, 50, 51, 100, 101, 1000, 1001, 10**6]
    assert frequency.frequency_bin(counts).tolist() == [
        0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8,
    ]  # fmt: skip
