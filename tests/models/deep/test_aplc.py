"""Adaptive probabilistic label clusters against slow sums and numbers computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from coattail.config import parse
from coattail.errors import ConfigError
from coattail.models.deep.deep_params import AplcParams, DeepParams
from coattail.models.deep.nets.aplc import Clusters
from coattail.models.deep.nets.layers import Mixture
from coattail.models.deep.nets.loss import positive_weights


def clusters(n_labels: int = 7, cuts: list[float] | None = None, width: int = 8) -> Clusters:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        made = Clusters(width, n_labels, cuts or [0.3, 0.6])
    made.order.copy_(torch.randperm(n_labels, generator=torch.Generator().manual_seed(1)))
    return made


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def slow_probability(made: Clusters, vector: torch.Tensor, label: int) -> float:
    """One label, one text, step by step."""
    rank = made.order.tolist().index(label)
    cluster = max(i for i, bound in enumerate(made.bounds[:-1]) if bound <= rank)
    inside = rank - made.bounds[cluster]
    head = made.head(vector).tolist()
    if cluster == 0:
        return sigmoid(head[inside])
    tail = made.tails[cluster - 1]
    narrow = tail.narrow(vector)
    centred = narrow - narrow.mean()
    scaled = centred / torch.sqrt((centred**2).mean() + tail.norm.eps)
    output = tail.output(torch.relu(scaled * tail.norm.weight + tail.norm.bias)).tolist()
    return sigmoid(head[made.bounds[1] + cluster - 1]) * sigmoid(output[inside])


def test_labels_are_cut_by_shares_and_tails_get_narrower() -> None:
    made = clusters(10, [0.3, 0.6], width=8)
    assert made.bounds == [0, 3, 6, 10]
    assert made.head.out_features == 3 + 2
    assert [tail.narrow.out_features for tail in made.tails] == [4, 2]
    assert [tail.output.out_features for tail in made.tails] == [3, 4]


def test_probabilities_are_products_along_the_path() -> None:
    made = clusters()
    vectors = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = torch.sigmoid(made.logits(vectors))
        for row in range(4):
            for label in range(7):
                expected = slow_probability(made, vectors[row], label)
                assert float(found[row, label]) == pytest.approx(expected, rel=1e-5)


def test_a_certain_label_has_a_finite_logit() -> None:
    made = clusters()
    with torch.no_grad():
        made.head.bias.fill_(80.0)
        made.tails[0].output.bias.fill_(80.0)
        assert bool(torch.isfinite(made.logits(torch.zeros(1, 8))).all())


@pytest.mark.parametrize("weighted", [False, True])
def test_loss_is_the_mean_over_the_outputs_a_text_evaluates(weighted: bool) -> None:
    made = clusters()
    vectors = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    order = made.order.tolist()
    targets = torch.zeros(3, 7)
    targets[0, order[0]] = 1  # first cluster only
    targets[1, order[3]] = targets[1, order[6]] = 1  # both tails
    # text 2 has no label at all
    weights = torch.arange(1.0, 8.0) if weighted else None
    expected = []
    with torch.no_grad():
        for row in range(3):
            terms = []
            head = made.head(vectors[row]).tolist()
            for rank, label in enumerate(order):
                cluster = max(i for i, b in enumerate(made.bounds[:-1]) if b <= rank)
                members = order[made.bounds[cluster] : made.bounds[cluster + 1]]
                if cluster and not any(targets[row, m] for m in members):
                    continue  # only its root counts
                if cluster == 0:
                    p = sigmoid(head[rank])
                else:
                    root = sigmoid(head[made.bounds[1] + cluster - 1])
                    p = slow_probability(made, vectors[row], label) / root
                w = 1.0 if weights is None else float(weights[label])
                terms.append(-w * math.log(p) if targets[row, label] else -math.log(1 - p))
            for cluster in (1, 2):
                members = order[made.bounds[cluster] : made.bounds[cluster + 1]]
                p = sigmoid(head[made.bounds[1] + cluster - 1])
                has = any(targets[row, m] for m in members)
                terms.append(-math.log(p if has else 1 - p))
            expected.append(sum(terms) / len(terms))
        loss = made.loss(vectors, targets, made.roots(targets), weights)
    assert float(loss) == pytest.approx(sum(expected) / 3, rel=1e-5)


def test_a_tail_without_a_positive_gets_no_gradient_but_its_root_does() -> None:
    made = clusters()
    targets = torch.zeros(2, 7)
    targets[:, made.order[0]] = 1
    vectors = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    made.loss(vectors, targets, made.roots(targets), None).backward()
    root = made.head.weight.grad[made.bounds[1] :]
    assert float(root.abs().sum(dim=1).min()) > 0
    assert all(float(t.output.weight.grad.abs().sum()) == 0 for t in made.tails)


def test_roots_of_a_mixture_are_mixed_roots() -> None:
    made = clusters()
    order = made.order.tolist()
    targets = torch.zeros(2, 7)
    targets[0, order[4]] = targets[1, order[5]] = 1  # two labels of the last cluster
    mixture = Mixture(torch.tensor([1, 0]), torch.tensor([0.7, 0.7]), "hidden")
    assert mixture.blend(made.roots(targets)).tolist() == [[0, 1], [0, 1]]
    assert made.roots(mixture.blend(targets))[0, 1] == pytest.approx(0.7)  # what we do not want


def test_labels_are_sorted_by_frequency_and_biases_say_how_often() -> None:
    Y = sp.csr_matrix(
        np.array([[0, 1, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]], np.float32)
    )
    made = Clusters(8, 4, [0.5])
    made.start(Y)
    assert made.order.tolist() == [1, 2, 3, 0]
    with torch.no_grad():
        made.head.weight.zero_()
        made.tails[0].output.weight.zero_()
        p = torch.sigmoid(made.logits(torch.zeros(1, 8)))[0].tolist()
    assert p[1] == pytest.approx(4.5 / 6)
    assert p[2] == pytest.approx(2.5 / 6)
    assert p[3] == pytest.approx(1.5 / 6 * 1.5 / 2)  # one text has a tail label, and it is this one
    assert p[0] == pytest.approx(1.5 / 6 * 0.5 / 2)


def test_weights_have_mean_one_over_all_labels_not_over_each_cluster() -> None:
    counts = np.array([400, 300, 200, 100, 5, 3, 2, 1])
    weights = positive_weights("pw", counts, 1000)
    assert weights is not None
    assert weights.mean() == pytest.approx(1)
    assert weights[:4].mean() < 0.6 < 1.4 < weights[4:].mean()


def test_one_label_and_few_labels_need_no_tail() -> None:
    for n_labels in (1, 2):
        made = Clusters(4, n_labels, [0.5, 0.9])
        targets = torch.ones(2, n_labels)
        loss = made.loss(torch.zeros(2, 4), targets, made.roots(targets), None)
        assert math.isfinite(float(loss.detach()))
        assert made.logits(torch.zeros(2, 4)).shape == (2, n_labels)


def test_three_learning_rates() -> None:
    params = AplcParams(model="aplc", encoder_lr=5e-5, summary_lr=1e-4, lr=2e-3)
    assert params.rate_of("encoder.inner.embeddings.weight") == 5e-5
    assert params.rate_of("summary.weight") == 1e-4
    assert params.rate_of("clusters.head.weight") == 2e-3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cuts": [0.6, 0.3]}, "have to rise"),
        ({"cuts": [1.5]}, "less than 1"),
        ({"mix": "tailmix"}, "context vectors"),
        ({"tree": "pairs"}, "only attentionxml"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse({"model": "aplc", **settings}, DeepParams, "test")
