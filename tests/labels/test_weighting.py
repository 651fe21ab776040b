"""Weights on positives, by hand; both users, one-vs-rest and networks, get the same ones."""

import numpy as np
import pytest

from coattail.labels import weighting
from coattail.models.deep.nets import loss
from coattail.models.linear import problem_groups
from coattail.models.linear.linear_params import OvrParams

# A = 1, B = 1 and N texts: C = 2 (ln N - 1), q = 1 + C / (n + 1). With N = 55, C = 6.0147 ...
N, COUNTS = 55, np.array([0, 1, 2, 5])
C = 2 * (np.log(55) - 1)
PW = np.array([1 + C, 1 + C, 1 + 2 * C / 3, 1 + C / 3])  # 2 q - 1; no text counts as one
HALVED = np.array([1, 1, 2 / 3, 16 / 31])  # (1/2) / (1 - 2^-n)


def test_pw_is_two_q_minus_one():
    assert weighting.pw([1.0, 2.5]).tolist() == [1.0, 4.0]


def test_class_balance_by_hand():
    assert weighting.balanced(1.0, [0, 1, 2, 5], 0.5) == pytest.approx(HALVED)
    assert weighting.balanced([7.0, 3.0], [0, 2], 0.5) == pytest.approx([7, 2])
    assert weighting.balanced(3.0, [1, 9], 0.0).tolist() == [3, 3]


def test_pwcb_has_the_values_of_the_paper_on_eurlex():
    n = np.array([1, 2, 5, 10, 20, 100, 1000])
    weights = weighting.positive_weights("pwcb", n, 15_539)
    assert weights == pytest.approx([18.3, 8.1, 2.7, 1.3, 0.72, 0.33, 0.16], rel=0.03)


# q r + q - 1 with r the factor of class balance, where PW is 2 q - 1.
FIRST = HALVED * (PW + 1) / 2 + (PW - 1) / 2


@pytest.mark.parametrize(
    ("name", "wanted"), [("pw", PW), ("pwcb", PW * HALVED), ("pwcb_first", FIRST)]
)
@pytest.mark.parametrize("normalise", [False, True])
def test_one_vs_rest_and_networks_weigh_alike_also_without_a_text(name, wanted, normalise):
    normal = wanted * 4 / wanted.sum()
    own = weighting.positive_weights(name, COUNTS, N, (1.0, 1.0), 0.5, normalise=normalise)
    assert own == pytest.approx(normal if normalise else wanted)
    params = OvrParams(
        weighting=name, beta=0.5, propensity_a=1.0, propensity_b=1.0, normalise=normalise
    )
    assert problem_groups.positive_weights(params, COUNTS, N).tolist() == own.tolist()
    network = loss.positive_weights(name, COUNTS, N, (1.0, 1.0), 0.5)
    assert network == pytest.approx(normal, rel=1e-6)
    assert network.dtype == np.float32


def test_no_weighting_weighs_one():
    assert weighting.positive_weights("none", COUNTS, N).tolist() == [1] * 4
    assert problem_groups.positive_weights(OvrParams(), COUNTS, N).tolist() == [1] * 4
    assert loss.positive_weights("none", COUNTS, N) is None


def test_no_label_at_all_is_no_accident():
    assert weighting.positive_weights("pw", [], N).tolist() == []
