"""Metrics: fractions a reader can check, agreement with other implementations, properties."""

from __future__ import annotations

import csv
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.errors import DataError
from coattail.evaluation import metrics
from coattail.labels import frequency

ROOT = Path(__file__).parents[2]
BENCH = ROOT.parent / "shared" / "bench" / "evaluate.py"

# --- a case to do by hand ------------------------------------------------------------------------
# Three texts, six labels; label 5 is true nowhere, label 4 was never seen in training.
TRUTH = [[0, 1, 4], [0], [2, 3]]
RANKED = [[0, 2, 1], [3, 0, 5], [5, 1, -1]]
SCORES = [[0.9, 0.8, 0.7], [0.6, 0.5, 0.2], [0.4, 0.1, -math.inf]]
Q = np.array([1.0, 2.0, 3.0, 4.0, 8.0, 5.0])
BANDS = np.array([0, 0, 1, 1, 2, 2], np.int8)


def truth(rows: list[list[int]], n_labels: int) -> sp.csr_matrix:
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.array([label for row in rows for label in sorted(row)], np.int32)
    return sp.csr_matrix(
        (np.ones(len(indices), np.float32), indices, indptr), shape=(len(rows), n_labels)
    )


def ranking(
    rows: list[list[int]], scores: list[list[float]] | None = None, kind: str = "probability"
) -> TopK:
    found = np.array(rows, np.int32).reshape(len(rows), -1)
    if scores is None:
        values = np.where(found < 0, -np.inf, np.linspace(1, 0.1, found.shape[1]))
    else:
        values = np.array(scores)
    return TopK(found, values.astype(np.float32), kind)  # type: ignore[arg-type]


HAND = (ranking(RANKED, SCORES), truth(TRUTH, 6))


def by_hand(name: str, k: int, variant: metrics.Variant = "a") -> float:
    return metrics.ranked(*HAND, name, k, Q, variant)


def percent(value: float) -> object:
    return pytest.approx(100 * value, abs=1e-9)


def test_precision_divides_by_k_whatever_the_text_has() -> None:
    assert by_hand("p", 1) == percent((1 + 0 + 0) / 3)
    assert by_hand("p", 3) == percent((2 / 3 + 1 / 3 + 0) / 3)
    assert by_hand("p", 5) == percent((2 / 5 + 1 / 5 + 0) / 3)


def test_ndcg_divides_by_the_best_ranking_of_each_text() -> None:
    second, third = 1 / math.log2(3), 1 / 2
    first_text = (1 + third) / (1 + second + third)
    assert by_hand("ndcg", 3) == percent((first_text + second / 1 + 0) / 3)


def test_psp_is_a_ratio_of_sums_with_unseen_labels_in_the_denominator() -> None:
    assert by_hand("psp", 1) == percent((1 + 0 + 0) / (8 + 1 + 4))
    assert by_hand("psp", 3) == percent((1 + 2 + 1 + 0) / ((8 + 2 + 1) + 1 + (4 + 3)))


def test_psndcg_in_both_variants() -> None:
    second, third = 1 / math.log2(3), 1 / 2
    gained = (1 + 2 * third, 1 * second, 0)
    ideal = (8 + 2 * second + 1 * third, 1, 4 + 3 * second)
    assert by_hand("psndcg", 3, "a") == percent(sum(gained) / sum(ideal))
    best = (1 + second + third, 1, 1 + second)
    b = [[x / d for x, d in zip(row, best, strict=True)] for row in (gained, ideal)]
    assert by_hand("psndcg", 3, "b") == percent(sum(b[0]) / sum(b[1]))


def test_r_precision_and_recall_divide_by_what_could_be_found() -> None:
    assert by_hand("rp", 1) == percent((1 / 1 + 0 + 0) / 3)
    assert by_hand("rp", 3) == percent((2 / 3 + 1 / 1 + 0 / 2) / 3)
    assert by_hand("recall", 1) == percent((1 / 3 + 0 + 0) / 3)
    assert by_hand("recall", 3) == percent((2 / 3 + 1 / 1 + 0 / 2) / 3)


def test_coverage_counts_labels_that_are_true_somewhere() -> None:
    assert metrics.coverage(*HAND, 1) == percent(1 / 5)
    assert metrics.coverage(*HAND, 3) == percent(2 / 5)


def test_f1_at_a_threshold_counts_predictions_at_or_above_it() -> None:
    # At 0.5: text 0 predicts 0 2 1 (two right), text 1 predicts 3 0 (one right), text 2 nothing.
    assert metrics.micro_f1(*HAND, 0.5) == percent(2 * 3 / (5 + 6))
    # Label 0: two of two right, true twice; label 1: one right; 2 and 3 only wrong; 4 never said.
    assert metrics.macro_f1(*HAND, 0.5) == percent((1 + 1 + 0 + 0 + 0) / 5)
    assert metrics.micro_f1(*HAND, 0.55) == percent(2 * 2 / (4 + 6))


def test_groups_share_the_ranked_metrics_and_own_their_recall() -> None:
    head, torso, tail = metrics.by_group(metrics.judge(*HAND, Q), BANDS, 3, (3,), 0.5)
    assert head["p_at_3"] == percent((2 / 3 + 1 / 3) / 3)
    assert (torso["p_at_3"], tail["p_at_3"]) == (0, 0)
    assert head["psp_at_3"] == percent(4 / 19)
    assert head["recall_at_3"] == percent(3 / 3)
    assert torso["recall_at_3"] == percent(0 / 2)
    assert head["coverage_at_3"] == percent(2 / 2)
    assert tail["coverage_at_3"] == percent(0 / 1)
    # Label 1 is also predicted once wrongly in text 2.
    assert head["macro_f1_at_3"] == percent((1 + 2 * 1 / (2 + 1)) / 2)
    assert head["micro_f1"] == percent(1)
    assert head["micro_f1_tuned"] == head["micro_f1"]
    assert torso["micro_f1"] == percent(0)


def test_score_names_and_order_are_fixed() -> None:
    result = metrics.score(*HAND, Q, BANDS, ks=(1, 5), threshold=0.3)
    names = ["p", "ndcg", "psp", "psndcg", "rp", "recall", "coverage", "macro_f1"]
    whole = [f"{name}_at_{k}" for name in names for k in (1, 5)]
    whole += ["micro_f1", "micro_f1_tuned", "macro_f1", "macro_f1_tuned"]
    bands = [f"{band}_{name}" for band in frequency.BANDS for name in whole]
    assert list(result) == whole + bands
    assert result["recall_at_5"] == by_hand("recall", 5)  # a mean over texts
    assert result["head_recall_at_5"] == percent(3 / 3)  # hits over true labels
    assert result["micro_f1_tuned"] == percent(2 * 3 / (6 + 6))


def test_changes_are_the_32_pairs_that_the_pw_paper_prints() -> None:
    """Eq. 30: two means, of six scored and six plain figures, those at rank 1 counted twice."""
    short = {"PSP": "psp", "PnD": "psndcg", "P": "p", "nD": "ndcg"}
    tables: dict[tuple[str, str, str], dict[str, float]] = {}
    with open(ROOT / "studies" / "published.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["paper"] == "PW":
                key = (row["table"], row["dataset"], row["method"])
                name, _, k = row["metric"].partition("@")
                metric = f"{short[name]}_at_{k}" if k else name
                tables.setdefault(key, {})[metric] = float(row["value"])
    pairs = 0
    for (table, dataset, method), values in tables.items():
        if method.endswith(" Original"):
            continue
        base = tables[table, dataset, f"{method.rpartition(' ')[0]} Original"]
        found = metrics.changes(values, base)
        assert round(found["scored_change"], 2) == pytest.approx(values["relative scored %"])
        assert round(found["plain_change"], 2) == pytest.approx(values["relative plain %"])
        pairs += 1
    assert pairs == 32


def test_a_change_leaves_out_what_cannot_be_compared() -> None:
    names = ("p_at_1", "p_at_3", "p_at_5", "psp_at_1")
    base = {"p_at_1": 50.0, "p_at_3": 0.0, "p_at_5": math.nan}
    values = {"p_at_1": 60.0, "p_at_3": 5.0, "p_at_5": 5.0, "psp_at_1": 7.0}
    assert metrics.mean_change(values, base, names) == pytest.approx(20)
    assert math.isnan(metrics.mean_change(values, {}, names))


# --- thresholds ----------------------------------------------------------------------------------


def test_chosen_threshold_is_the_best_of_all_scores() -> None:
    rng = np.random.default_rng(0)
    top, Y = random_case(rng, n=60, n_labels=12, k=6)
    top = TopK(top.labels, np.round(top.scores, 1), top.kind)  # many equal scores
    chosen = metrics.choose_threshold(top, Y)
    tried = np.unique(top.scores[top.labels >= 0])
    values = [metrics.micro_f1(top, Y, float(score)) for score in tried]
    assert metrics.micro_f1(top, Y, chosen) == max(values)
    assert chosen == max(s for s, v in zip(tried, values, strict=True) if v == max(values))


def test_threshold_pays_for_wrong_predictions_of_the_same_score() -> None:
    # 0.9 gives 2 * 1 / (1 + 2); 0.5 finds the other label too, with four wrong ones beside it.
    top = ranking([[0, 1, 2], [3, 4, 5]], [[0.9, 0.5, 0.5], [0.5, 0.5, 0.5]])
    assert metrics.choose_threshold(top, truth([[0], [3]], 6)) == pytest.approx(0.9)


def test_threshold_without_a_hit_is_the_fixed_one() -> None:
    Y = truth([[1]], 3)
    assert metrics.choose_threshold(ranking([[0, 2]]), Y) == 0.5
    assert metrics.choose_threshold(ranking([[0, 2]], kind="margin"), Y) == 0.0


def test_margins_are_cut_at_the_hyperplane() -> None:
    top = ranking([[0, 1, 2]], [[1.3, 0.1, -0.2]], kind="margin")
    result = metrics.score(top, truth([[0, 2]], 3), np.ones(3), np.zeros(3, np.int8))
    assert result["micro_f1"] == percent(2 * 1 / (2 + 2))


def test_a_reranked_list_is_cut_by_its_probabilities_in_any_order_of_the_list() -> None:
    plain = ranking([[0, 1, 2], [3, 1, 0]], [[0.9, 0.6, 0.2], [0.8, 0.3, 0.1]])
    order, Y = [2, 1, 0], truth([[0, 2], [1]], 4)
    scores = np.array([[40.0, 2.0, 0.5]] * 2, np.float32)
    turned = TopK(plain.labels[:, order], scores, "score", probability=plain.scores[:, order])
    assert metrics.choose_threshold(turned, Y) == metrics.choose_threshold(plain, Y)
    for name in ("micro_f1", "macro_f1", "micro_f1_tuned", "macro_f1_tuned"):
        before, after = (
            metrics.score(top, Y, np.ones(4), np.zeros(4, np.int8), threshold=0.25)[name]
            for top in (plain, turned)
        )
        assert before == after
    # Above 0.5: labels 0, 1 and 3; one hit, three true labels.
    assert metrics.micro_f1(turned, Y, metrics.fixed_threshold(turned)) == percent(2 / 6)


def test_scores_that_only_order_have_no_threshold_and_no_f1() -> None:
    top, Y = ranking([[0, 1]], [[5.0, 3.0]], kind="score"), truth([[0]], 2)
    chosen = metrics.choose_threshold(top, Y)
    assert math.isnan(chosen)
    result = metrics.score(top, Y, np.ones(2), np.zeros(2, np.int8), threshold=chosen)
    assert result["p_at_1"] == 100
    for name in ("micro_f1", "macro_f1", "micro_f1_tuned", "head_macro_f1"):
        assert math.isnan(result[name])
    assert math.isnan(metrics.judge(top, Y).micro_f1(chosen).percent)


# --- borders -------------------------------------------------------------------------------------


def test_empty_text_counts_as_zero_in_p_and_ndcg_and_not_at_all_in_recall() -> None:
    top, Y = ranking([[0], [0]]), truth([[0], []], 2)
    assert metrics.ranked(top, Y, "p", 1) == percent(1 / 2)
    assert metrics.ranked(top, Y, "ndcg", 1) == percent(1 / 2)
    assert metrics.ranked(top, Y, "recall", 1) == percent(1)
    assert metrics.ranked(top, Y, "rp", 1) == percent(1)
    assert metrics.ranked(top, Y, "psp", 1) == percent(1)


def test_fewer_than_k_predictions_are_misses_not_errors() -> None:
    top, Y = ranking([[1], [-1]]), truth([[0, 1], [0]], 2)
    assert metrics.ranked(top, Y, "p", 5) == percent((1 / 5 + 0) / 2)
    assert metrics.ranked(top, Y, "recall", 5) == percent((1 / 2 + 0) / 2)
    assert metrics.score(top, Y, np.ones(2), np.zeros(2, np.int8))["coverage_at_5"] == percent(
        1 / 2
    )


def test_ranking_of_width_zero_scores_zero() -> None:
    top = TopK(np.empty((2, 0), np.int32), np.empty((2, 0), np.float32))
    assert metrics.score(top, truth([[0], [1]], 2), np.ones(2), np.zeros(2, np.int8))["p_at_5"] == 0


def test_band_without_a_true_label_is_nan() -> None:
    result = metrics.score(ranking([[0, 2]]), truth([[0]], 3), np.ones(3), np.array([0, 1, 2]))
    tail = {name: value for name, value in result.items() if name.startswith(("tail_", "torso_"))}
    assert tail
    assert all(math.isnan(value) for value in tail.values())
    assert not any(math.isnan(v) for name, v in result.items() if name.startswith("head_"))


def test_no_text_at_all_is_nan() -> None:
    top = TopK(np.empty((0, 5), np.int32), np.empty((0, 5), np.float32))
    result = metrics.score(top, sp.csr_matrix((0, 3)), np.ones(3), np.zeros(3, np.int8))
    assert all(math.isnan(value) for value in result.values())


def test_stored_zero_in_the_truth_is_not_a_label() -> None:
    Y = truth([[0, 1]], 2)
    Y.data[1] = 0
    assert metrics.ranked(ranking([[0, 1]]), Y, "recall", 1) == percent(1)
    assert Y.nnz == 2  # the caller's matrix is left alone


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([[0, 1], [2, 2]], "row 1 .* same label twice"),
        ([[0, 3], [1, 2]], "row 0 .* outside 0..2"),
        ([[0, 1], [-2, 1]], "row 1 .* outside 0..2"),
        ([[-1, 1], [0, 1]], "row 0 .* gap"),
        ([[0, 1]], "1 texts but Y has 2"),
    ],
)
def test_ranking_that_cannot_be_scored_is_refused(rows: list[list[int]], what: str) -> None:
    with pytest.raises(DataError, match=what):
        metrics.judge(ranking(rows), truth([[0], [1]], 3))


def test_propensities_of_another_dataset_are_refused() -> None:
    with pytest.raises(DataError, match="4 propensities for 6 labels"):
        metrics.judge(*HAND, np.ones(4))


def test_unknown_metric_is_named_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"'map'.*ndcg"):
        metrics.ranked(*HAND, "map", 1)


# --- kernels against slow obvious references ---------------------------------------------------


def random_case(
    rng: np.random.Generator, n: int = 200, n_labels: int = 30, k: int = 7
) -> tuple[TopK, sp.csr_matrix]:
    """Texts with 0 to 8 of the labels (small ids more often) and rankings of uneven length."""
    popularity = 1 / np.arange(1, n_labels + 1)
    popularity /= popularity.sum()
    rows = [
        list(rng.choice(n_labels, rng.integers(0, min(9, n_labels)), replace=False, p=popularity))
        for _ in range(n)
    ]
    found = np.full((n, k), -1, np.int32)
    scores = np.full((n, k), -np.inf, np.float32)
    for i in range(n):
        size = rng.integers(0, k + 1)
        found[i, :size] = rng.choice(n_labels, size, replace=False, p=popularity)
        scores[i, :size] = np.sort(rng.random(size))[::-1]
    return TopK(found, scores), truth(rows, n_labels)


@pytest.mark.parametrize("k", [1, 7])
def test_hits_equal_set_membership(k: int) -> None:
    top, Y = random_case(np.random.default_rng(k), n=5000, k=k)
    hits = metrics.judge(top, Y).hits
    expected = [
        (i, j, label, top.scores[i, j])
        for i, row in enumerate(top.labels.tolist())
        for j, label in enumerate(row)
        if label in Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist()
    ]
    assert list(zip(*hits, strict=True)) == expected


def test_ideal_gains_equal_sorted_weights() -> None:
    from coattail.kernels import hits as kernels

    rng = np.random.default_rng(3)
    _, Y = random_case(rng, n=3000)
    weight = rng.integers(1, 6, 30).astype(float)  # ties
    ideal = np.empty((3000, 4))
    kernels.ideal_gains(Y.indptr.astype(np.int64), Y.indices, weight, ideal)
    for i in range(3000):
        best = sorted(weight[Y.indices[Y.indptr[i] : Y.indptr[i + 1]]], reverse=True)[:4]
        assert ideal[i].tolist() == best + [0.0] * (4 - len(best))


# --- other implementations -----------------------------------------------------------------------


def bench() -> ModuleType:
    if not BENCH.exists():
        pytest.skip(f"{BENCH.name} of the shared material is not here")
    sys.path.insert(0, str(BENCH.parent))
    try:
        spec = importlib.util.spec_from_file_location("bench_evaluate", BENCH)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(BENCH.parent))


def test_agrees_with_the_common_evaluator() -> None:
    module = bench()
    rng = np.random.default_rng(11)
    top, Y = random_case(rng, n=400, n_labels=50)
    counts = rng.integers(0, 60, 50)
    q = frequency.inverse_propensity(counts, 1000)
    theirs = module.evaluate(counts, 1000, Y, top.labels.astype(np.int64))
    judged = metrics.judge(top, Y, q, "b")
    ours = metrics.summarise(judged, frequency.bands(counts))
    pairs = {"p": "P", "ndcg": "nDCG", "psp": "PSP", "psndcg": "PSnDCG", "recall": "R"}
    pairs |= {"coverage": "coverage", "macro_f1": "macroF1"}
    for k in metrics.KS:
        for name, other in pairs.items():
            assert ours[f"{name}_at_{k}"] == pytest.approx(theirs[f"{other}@{k}"], abs=1e-9)
    bins = metrics.by_group(
        judged, frequency.frequency_bin(counts), len(frequency.BINS), metrics.KS
    )
    pairs = {"p": "P_part", "recall": "R", "coverage": "coverage", "macro_f1": "macroF1"}
    for mine, other_bin in zip(bins, theirs["bins"], strict=True):
        for name, other in pairs.items():
            wanted = other_bin[f"{other}@5"] if other_bin["test_labels"] else math.nan
            assert mine[f"{name}_at_5"] == pytest.approx(wanted, abs=1e-9, nan_ok=True)


def test_agrees_with_napkinxc() -> None:
    peer = pytest.importorskip("napkinxc.metrics", reason="napkinxc is a development dependency")
    rng = np.random.default_rng(12)
    top, Y = random_case(rng, n=300)
    some = np.diff(Y.indptr) > 0  # napkinxc averages recall over empty texts too
    top, Y = TopK(top.labels[some], top.scores[some]), Y[some]
    q = frequency.inverse_propensity(rng.integers(0, 60, 30), 1000)
    said = [[label for label in row if label >= 0] for row in top.labels.tolist()]
    real = [row.indices.tolist() for row in Y]
    ours = metrics.score(top, Y, q, np.zeros(30, np.int8), ks=(1, 2, 3, 4, 5), variant="b")
    theirs = {
        "p": peer.precision_at_k(real, said, k=5),
        "ndcg": peer.ndcg_at_k(real, said, k=5),
        "recall": peer.recall_at_k(real, said, k=5),
        "coverage": peer.coverage_at_k(real, said, k=5),
        "psp": peer.psprecision_at_k(real, said, q, k=5),
        "psndcg": peer.psndcg_at_k(real, said, q, k=5),
    }
    for name, values in theirs.items():
        mine = [ours[f"{name}_at_{k}"] for k in range(1, 6)]
        assert mine == pytest.approx(100 * values, abs=1e-9)
    everything = metrics.micro_f1(top, Y, 0.0)
    assert everything == pytest.approx(100 * peer.micro_f1_measure(real, said), abs=1e-9)


# --- properties ----------------------------------------------------------------------------------


def oracle(Y: sp.csr_matrix, q: NDArray[np.float64], k: int) -> TopK:
    rows = [sorted(row.indices.tolist(), key=lambda label: (-q[label], label)) for row in Y]
    return ranking([(row + [-1] * k)[:k] for row in rows])


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), variant=st.sampled_from(["a", "b"]))
def test_oracle_scores_100(seed: int, variant: metrics.Variant) -> None:
    rng = np.random.default_rng(seed)
    _, Y = random_case(rng, n=20)
    Y = Y[np.diff(Y.indptr) > 0]
    if Y.shape[0] == 0:
        return
    q = frequency.inverse_propensity(rng.integers(0, 20, 30), 100)
    for k in metrics.KS:
        for name in ("ndcg", "psp", "psndcg", "rp"):
            assert metrics.ranked(oracle(Y, q, 5), Y, name, k, q, variant) == percent(1)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_order_of_texts_changes_nothing_and_values_stay_in_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    top, Y = random_case(rng, n=15, n_labels=10)
    q, bands = 1 + rng.random(10), rng.integers(0, 3, 10).astype(np.int8)
    order = rng.permutation(15)
    shuffled = TopK(top.labels[order], top.scores[order])
    first = metrics.score(top, Y, q, bands, threshold=0.3)
    second = metrics.score(shuffled, Y[order], q, bands, threshold=0.3)
    assert list(first.values()) == pytest.approx(list(second.values()), abs=1e-9, nan_ok=True)
    assert all(math.isnan(v) or -1e-9 <= v <= 100 + 1e-9 for v in first.values())


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_turning_a_miss_into_a_hit_never_lowers_a_metric(seed: int) -> None:
    rng = np.random.default_rng(seed)
    top, Y = random_case(rng, n=10, n_labels=12, k=5)
    i = int(rng.integers(10))
    missed = set(Y[i].indices.tolist()) - set(top.labels[i].tolist())
    wrong = [j for j in range(5) if 0 <= top.labels[i, j] not in Y[i].indices]
    if not missed or not wrong:
        return
    changed = top.labels.copy()
    changed[i, wrong[0]] = min(missed)
    q, bands = 1 + rng.random(12), np.zeros(12, np.int8)
    before = metrics.score(top, Y, q, bands)
    after = metrics.score(TopK(changed, top.scores), Y, q, bands)
    for name, value in before.items():
        if not math.isnan(value):
            assert after[name] >= value - 1e-9, name


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_contributions_of_the_bands_sum_to_the_whole(seed: int) -> None:
    rng = np.random.default_rng(seed)
    top, Y = random_case(rng, n=15, n_labels=10)
    q, bands = 1 + rng.random(10), rng.integers(0, 3, 10).astype(np.int8)
    result = metrics.score(top, Y, q, bands)
    for k in metrics.KS:
        for name in ("p", "ndcg", "psp", "psndcg", "rp"):
            shares = [result[f"{band}_{name}_at_{k}"] for band in frequency.BANDS]
            wanted = result[f"{name}_at_{k}"]
            if not math.isnan(wanted):
                assert np.nansum(shares) == pytest.approx(wanted, abs=1e-9)


def test_per_text_ratios_sum_to_the_value() -> None:
    rng = np.random.default_rng(5)
    top, Y = random_case(rng)
    bands = rng.integers(0, 3, 30).astype(np.int8)
    judged = metrics.judge(top, Y, 1 + rng.random(30))
    result = metrics.summarise(judged, bands, threshold=0.4)
    for name in metrics.RANKED:
        assert judged.ratio(name, 3).percent == pytest.approx(result[f"{name}_at_3"], abs=1e-9)
    tail = judged.group_recall(5, bands == 2)
    assert tail.percent == pytest.approx(result["tail_recall_at_5"], abs=1e-9)
    assert judged.micro_f1(0.4).percent == pytest.approx(result["micro_f1_tuned"], abs=1e-9)
