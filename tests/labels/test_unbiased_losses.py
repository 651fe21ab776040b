"""Missing labels: unbiased on average, surrogates convex, rebalancing in two orders."""

import numpy as np
import pytest

from benchmarks import unbiased_losses
from coattail.errors import DataError
from coattail.labels.frequency import inverse_propensity
from coattail.labels.weighting import positive_weights

MARGIN_LOSSES = ("hinge", "squared_hinge", "bce")


@pytest.mark.parametrize("name", unbiased_losses.NAMES)
@pytest.mark.parametrize("y_true", [0, 1])
def test_estimate_has_the_mean_of_the_complete_loss(name, y_true):
    rng = np.random.default_rng(7)
    for p in (0.2, 0.5, 0.9, 1.0):
        for s in (-2.5, -0.4, 0.7, 3.0):
            recorded = y_true * (rng.random(400_000) < p)
            draws = unbiased_losses.unbiased(name, recorded, s, p)
            error = abs(draws.mean() - unbiased_losses.loss(name, y_true, s))
            assert error <= 5 * draws.std() / np.sqrt(len(draws)) + 1e-12


@pytest.mark.parametrize("name", unbiased_losses.NAMES)
def test_plain_loss_of_recorded_labels_is_biased(name):
    rng = np.random.default_rng(8)
    recorded = rng.random(100_000) < 0.3
    plain = unbiased_losses.loss(name, recorded, -1.5).mean()
    assert abs(plain - float(unbiased_losses.loss(name, 1, -1.5))) > 0.3


def test_estimates_by_hand():
    # p = 1/2: twice the loss as a positive, less the loss as a negative.
    assert unbiased_losses.unbiased("zero_one", 1, 2.0, 0.5) == -1
    assert unbiased_losses.unbiased("zero_one", 1, -2.0, 0.5) == 2
    assert unbiased_losses.unbiased("hinge", 1, 0.0, 0.5) == 1
    assert unbiased_losses.unbiased("squared_hinge", 1, 3.0, 0.5) == -16
    assert unbiased_losses.unbiased("bce", 1, 0.0, 0.5) == pytest.approx(np.log(2))
    assert unbiased_losses.unbiased("hinge", 0, 1.0, 0.5) == 2


def test_unbiased_zero_one_loss_is_a_weighted_zero_one_loss_and_a_constant():
    s = np.linspace(-3, 3, 61)
    for p in (0.1, 0.5, 1.0):
        q = 1 / p
        shifted = unbiased_losses.unbiased("zero_one", 1, s, p) + (q - 1)
        np.testing.assert_allclose(shifted, (2 * q - 1) * unbiased_losses.loss("zero_one", 1, s))


@pytest.mark.parametrize("name", MARGIN_LOSSES)
@pytest.mark.parametrize("y", [0, 1])
def test_surrogate_bounds_the_unbiased_zero_one_loss_from_above(name, y):
    s = np.linspace(-6, 6, 1001)
    scale = np.log(2) if name == "bce" else 1.0
    for p in (0.1, 0.4, 1.0):
        target = unbiased_losses.unbiased("zero_one", y, s, p) + (1 / p - 1) * y
        assert np.all(unbiased_losses.surrogate(name, y, s, p) / scale >= target - 1e-12)


@pytest.mark.parametrize("name", MARGIN_LOSSES)
def test_surrogate_is_convex_and_not_negative(name):
    s = np.linspace(-5, 5, 1001)
    values = unbiased_losses.surrogate(name, 1, s, 0.2)
    assert np.all(np.diff(values, 2) >= -1e-9)
    assert np.all(values >= 0)


def test_unbiased_hinge_is_not_convex():
    s = np.linspace(-5, 5, 1001)
    assert np.diff(unbiased_losses.unbiased("hinge", 1, s, 0.2), 2).min() < -1e-3


@pytest.mark.parametrize("name", MARGIN_LOSSES)
def test_unbiased_margin_losses_have_no_lower_bound(name):
    values = unbiased_losses.unbiased(name, 1, np.array([10.0, 100.0, 1000.0]), 0.5)
    assert np.all(np.diff(values) < 0)
    assert values[-1] < -500


def test_orders_of_rebalancing_differ_unless_all_labels_are_recorded():
    before = unbiased_losses.rebalanced_then_unbiased(np.array([1.0, 0.5]), 3.0)
    after = unbiased_losses.unbiased_then_rebalanced(np.array([1.0, 0.5]), 3.0)
    np.testing.assert_allclose(before, [3, 7])  # q r + q - 1
    np.testing.assert_allclose(after, [3, 9])  # r (2 q - 1)


def test_rebalancing_first_is_unbiased_for_the_rebalanced_loss():
    rng = np.random.default_rng(9)
    p, factor, s = 0.4, 2.5, -0.3
    recorded = rng.random(400_000) < p
    q = 1 / p
    positive = q * factor * unbiased_losses.loss("zero_one", 1, s) - (q - 1) * unbiased_losses.loss(
        "zero_one", 0, s
    )
    draws = np.where(recorded, positive, unbiased_losses.loss("zero_one", 0, s))
    assert draws.mean() == pytest.approx(factor, abs=5 * draws.std() / np.sqrt(len(draws)))
    # Its weight is the slope between the two decisions, as for 2q - 1.
    right = q * factor * unbiased_losses.loss("zero_one", 1, 1.0) - (q - 1) * unbiased_losses.loss(
        "zero_one", 0, 1.0
    )
    assert positive - right == pytest.approx(unbiased_losses.rebalanced_then_unbiased(p, factor))


def test_balance_times_pw_is_the_weight_models_train_with():
    counts = np.array([0, 1, 5, 100])
    q = inverse_propensity(np.maximum(counts, 1), 1000)
    mine = unbiased_losses.unbiased_then_rebalanced(1 / q, unbiased_losses.balance(counts, 0.9))
    np.testing.assert_allclose(mine, positive_weights("pwcb", counts, 1000, beta=0.9))


def test_wrong_labels_and_propensities_are_named():
    with pytest.raises(DataError, match="0 and 1"):
        unbiased_losses.loss("hinge", 2, 0.0)
    with pytest.raises(DataError, match="propensity"):
        unbiased_losses.unbiased("hinge", 1, 0.0, 0.0)
    with pytest.raises(DataError, match="no loss 'cube'"):
        unbiased_losses.loss("cube", 1, 0.0)  # type: ignore[arg-type]


def test_picture_is_written(tmp_path):
    unbiased_losses.picture(tmp_path / "plots" / "losses.png")
    assert (tmp_path / "plots" / "losses.png").read_bytes().startswith(b"\x89PNG")
