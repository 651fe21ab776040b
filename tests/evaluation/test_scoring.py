"""Evaluation: the bootstrap against a slow reference, tables by hand, files to the byte."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from coattail import config
from coattail.arrays import TopK, best_first, save_csr
from coattail.data.features import Features
from coattail.errors import ConfigError, DataError
from coattail.evaluation import bootstrap, champion, metrics
from coattail.evaluation.scoring import (
    EvaluateParams,
    Evaluation,
    Stored,
    calibration,
    evaluate,
    front,
)
from coattail.evaluation.second_ranking import reorder_top5
from coattail.labels import frequency

N_LABELS = 24
FEW = EvaluateParams(resamples=50)


def world(folder: Path, complete: bool = True) -> Features:
    """Small ids are frequent; the last label is unseen; a quarter of the truth is hidden."""
    rng = np.random.default_rng(0)
    popularity = 1 / np.arange(1, N_LABELS + 1)
    popularity /= popularity.sum()
    observed = {}
    for split, n in (("train", 150), ("valid", 60), ("test", 90)):
        dense = np.zeros((n, N_LABELS), np.float32)
        for row in dense:
            row[rng.choice(N_LABELS, rng.integers(1, 6), p=popularity)] = 1
        if split != "test":
            dense[:, -1] = 0
        kept = dense * (rng.random(dense.shape) < 0.75)
        observed[split] = sp.csr_matrix(kept)
        save_csr(folder / "labels" / split, observed[split])
        if complete:
            save_csr(folder / "labels" / "complete" / split, sp.csr_matrix(dense))
    counts = frequency.counts(sp.csr_matrix(sp.vstack([observed["train"], observed["valid"]])))
    np.save(folder / "labels" / "counts.npy", counts)
    np.save(folder / "labels" / "inverse_propensity.npy", frequency.inverse_propensity(counts, 210))
    np.save(folder / "labels" / "bands.npy", frequency.bands(counts))
    (folder / "labels" / "propensity.json").write_text('{"A": 0.55, "B": 1.5}')
    return Features(folder)


def rank(Y: sp.csr_matrix, skill: float, seed: int) -> TopK:
    """Noise, and for true labels a push that grows with skill."""
    rng = np.random.default_rng(seed)
    scores = np.clip(0.6 * rng.random(Y.shape) + skill * Y.toarray() * rng.random(Y.shape), 0, 1)
    every = np.broadcast_to(np.arange(Y.shape[1]), Y.shape)
    return best_first(every, scores, 10)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Features:
    return world(tmp_path_factory.mktemp("features"))


@pytest.fixture(scope="module")
def candidates(features: Features) -> dict[str, dict[str, TopK]]:
    skills = {"weak": 0.2, "strong": 0.9, "middle": 0.5}
    return {
        name: {s: rank(features.Y(s), skill, i) for s in ("valid", "test")}  # type: ignore[arg-type]
        for i, (name, skill) in enumerate(skills.items())
    }


@pytest.fixture(scope="module")
def evaluation(candidates: dict[str, dict[str, TopK]], features: Features) -> Evaluation:
    return evaluate(candidates, features, FEW)


# --- bootstrap -----------------------------------------------------------------------------------


def some_ratios(rng: np.random.Generator, n: int) -> dict[str, metrics.Ratio]:
    return {name: metrics.Ratio(rng.random(n), 1 + rng.random(n)) for name in ("one", "two")}


def test_resampled_ratios_equal_drawing_texts_one_by_one() -> None:
    ratios = some_ratios(np.random.default_rng(1), 17)
    found = bootstrap.resample(ratios, 6, seed=3)
    rng = np.random.default_rng(3)
    for r in range(6):
        drawn = rng.integers(0, 17, 17)
        for name, (numerator, denominator) in ratios.items():
            wanted = 100 * numerator[drawn].sum() / denominator[drawn].sum()
            assert found[name][r] == pytest.approx(wanted, rel=1e-12)


def test_size_of_the_blocks_changes_no_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = some_ratios(np.random.default_rng(2), 40)
    whole = bootstrap.resample(ratios, 25, seed=0)
    monkeypatch.setattr(bootstrap, "BLOCK_BYTES", 4 * 40 * 3)
    parts = bootstrap.resample(ratios, 25, seed=0)
    assert all(np.array_equal(whole[name], parts[name]) for name in ratios)


def test_spread_of_a_share_is_the_textbook_one() -> None:
    hit = (np.arange(400) < 100).astype(float)
    draws = bootstrap.resample({"p": metrics.Ratio(hit, np.ones(400))}, 2000, seed=0)["p"]
    assert draws.std() == pytest.approx(100 * math.sqrt(0.25 * 0.75 / 400), rel=0.1)
    low, high = bootstrap.interval(draws, 0.95)
    assert high - low == pytest.approx(2 * 1.96 * draws.std(), rel=0.1)


def test_resample_without_a_denominator_does_not_vote() -> None:
    assert bootstrap.interval(np.array([np.nan, 1.0, 3.0]), 0.5) == (1.5, 2.5)
    assert all(math.isnan(end) for end in bootstrap.interval(np.array([np.nan]), 0.95))


def test_bouts_count_wins_ties_and_losses() -> None:
    mine, other = np.array([1.0, 0.3, 0.0, 2.0]), np.array([0.0, 0.1 + 0.2, 1.0, 1.0])
    assert bootstrap.bouts(mine, other) == (2, 1, 1)


# --- tables --------------------------------------------------------------------------------------


def test_metrics_are_those_of_score_with_the_threshold_of_validation(
    evaluation: Evaluation, candidates: dict[str, dict[str, TopK]], features: Features
) -> None:
    rankings = candidates["middle"]
    threshold = metrics.choose_threshold(rankings["valid"], features.Y("valid"))
    wanted = metrics.score(
        *(rankings["test"], features.Y("test"), features.inverse_propensity, features.bands),
        threshold=threshold,
    )
    found = evaluation.metrics["middle"]
    assert {name: found[name] for name in wanted} == wanted
    assert evaluation.summary["thresholds"]["middle"] == threshold


def comparison(evaluation: Evaluation, name: str, metric: str, against: str) -> dict[str, object]:
    rows = evaluation.tables["comparisons"]
    key = (name, metric, against)
    (row,) = [r for r in rows if (r["candidate"], r["metric"], r["against"]) == key]
    return row


def test_much_better_candidate_differs_really_and_the_base_not_from_itself(
    evaluation: Evaluation,
) -> None:
    strong = comparison(evaluation, "strong", "psp_at_5", "base")
    assert strong["other"] == "weak"
    assert strong["real"] is True
    assert 0 < strong["low"] < strong["difference"] < strong["high"]  # type: ignore[operator]
    assert sum(strong[k] for k in ("wins", "ties", "losses")) == 90  # type: ignore[misc]
    itself = comparison(evaluation, "weak", "psp_at_5", "base")
    assert (itself["difference"], itself["low"], itself["high"]) == (0, 0, 0)
    assert itself["real"] is False
    assert (itself["wins"], itself["ties"], itself["losses"]) == (0, 90, 0)


def test_every_candidate_meets_the_best_of_each_metric(evaluation: Evaluation) -> None:
    assert evaluation.summary["best"]["p_at_5"] == "strong"
    row = comparison(evaluation, "middle", "p_at_5", "best")
    assert row["other"] == "strong"
    values = evaluation.metrics
    assert row["difference"] == values["middle"]["p_at_5"] - values["strong"]["p_at_5"]


def test_intervals_hold_the_value_they_belong_to(evaluation: Evaluation) -> None:
    rows = [row for row in evaluation.tables["intervals"] if row["candidate"] == "strong"]
    assert {"p_at_1", "psp_at_5", "tail_recall_at_5", "micro_f1_tuned"} <= {
        row["metric"] for row in rows
    }
    for row in rows:
        assert row["value"] == evaluation.metrics["strong"][row["metric"]]
        assert row["low"] <= row["value"] <= row["high"]


def test_base_can_be_chosen_and_changes_are_over_it(
    candidates: dict[str, dict[str, TopK]], features: Features
) -> None:
    result = evaluate(candidates, features, EvaluateParams(resamples=10, base="middle"))
    assert result.summary["base"] == "middle"
    for change in ("scored_change", "plain_change"):
        assert result.metrics["middle"][change] == 0
        assert result.metrics["weak"][change] < 0 < result.metrics["strong"][change]


# --- the champion --------------------------------------------------------------------------------


def test_champion_is_chosen_on_validation_and_test_has_no_say(
    candidates: dict[str, dict[str, TopK]], features: Features
) -> None:
    best = champion.BestParams(at_least={})
    rankings = {name: dict(one) for name, one in candidates.items()}
    rankings["weak"]["valid"], rankings["strong"]["valid"] = (
        candidates[name]["valid"] for name in ("strong", "weak")
    )
    found = evaluate(rankings, features, EvaluateParams(resamples=10, best=best))
    assert found.summary["best"]["psp_at_5"] == "strong", "on test"
    assert found.summary["champion"]["name"] == "weak", "on validation"
    shuffled = {
        name: one | {"test": candidates[other]["test"]}
        for (name, one), other in zip(rankings.items(), ("middle", "weak", "strong"), strict=True)
    }
    again = evaluate(shuffled, features, EvaluateParams(resamples=10, best=best))
    assert again.summary["champion"] == found.summary["champion"]


def test_validation_is_scored_with_labels_counted_in_train_alone(
    evaluation: Evaluation, candidates: dict[str, dict[str, TopK]], features: Features
) -> None:
    train = features.Y("train")
    weights = frequency.inverse_propensity(frequency.counts(train), train.shape[0], 0.55, 1.5)
    judged = metrics.judge(candidates["middle"]["valid"], features.Y("valid"), weights)
    row = validation(evaluation, "middle", "psp_at_5")
    assert row["valid"] == pytest.approx(judged.ratio("psp", 5).percent, rel=1e-12)
    assert row["test"] == evaluation.metrics["middle"]["psp_at_5"]
    assert row["difference"] == row["valid"] - row["test"]
    assert row["low"] < row["difference"] < row["high"]


def validation(evaluation: Evaluation, name: str, metric: str) -> dict[str, float]:
    rows = evaluation.tables["validation"]
    (row,) = [r for r in rows if (r["candidate"], r["metric"]) == (name, metric)]
    return row


def test_validation_that_is_easier_than_test_is_noticed_and_equal_ones_are_not(
    candidates: dict[str, dict[str, TopK]], features: Features, evaluation: Evaluation
) -> None:
    def apart(found: Evaluation) -> list[str]:
        rows = found.tables["validation"]
        return [r["candidate"] for r in rows if r["metric"] == "psp_at_5" and r["real"]]

    assert apart(evaluation) == []
    flattered = {
        name: {"valid": rank(features.Y("valid"), 3.0, i), "test": rankings["test"]}
        for i, (name, rankings) in enumerate(candidates.items())
    }
    assert apart(evaluate(flattered, features, FEW)) == ["weak", "strong", "middle"]


def test_a_rule_by_a_metric_without_intervals_still_has_its_figures(
    candidates: dict[str, dict[str, TopK]], features: Features
) -> None:
    for metric in ("scored_change", "tail_coverage_at_5", "macro_f1_tuned"):
        best = champion.BestParams(by=metric, at_least={"coverage_at_5": "base"})
        found = evaluate(candidates, features, EvaluateParams(resamples=10, best=best))
        name = found.summary["champion"]["name"]
        shown = {one: validation(found, one, metric)["valid"] for one in candidates}
        assert shown[name] == max(shown[one] for one in found.summary["champion"]["cleared"])
        row = validation(found, name, metric)
        assert row["difference"] == row["valid"] - row["test"]
        assert math.isnan(row["low"])
        assert not row["real"]


def test_rule_by_an_unknown_metric_is_refused(
    candidates: dict[str, dict[str, TopK]], features: Features
) -> None:
    best = champion.BestParams(by="pps_at_5", at_least={"p_at_7": 1.0})
    with pytest.raises(ConfigError, match=r"best\.by: .*did you mean 'psp_at_5'(.|\n)*p_at_7"):
        evaluate(candidates, features, EvaluateParams(best=best))


def test_metrics_that_a_rule_may_name_are_those_there_are(evaluation: Evaluation) -> None:
    there = [m for m in evaluation.metrics["weak"] if not m.startswith(("complete_", "missing_"))]
    assert sorted(metrics.names((1, 3, 5))) == sorted(there)


def test_front_keeps_what_nobody_beats_in_both() -> None:
    points = {"a": (5.0, 1.0), "b": (4.0, 4.0), "c": (4.0, 3.0), "d": (1.0, 4.0), "e": (4.0, 4.0)}
    values = {name: {"p_at_5": p, "psp_at_5": psp} for name, (p, psp) in points.items()}
    flags = {row["candidate"]: row["on_front"] for row in front(values, (5,))}
    assert flags == {"a": True, "b": True, "c": False, "d": False, "e": True}


def test_calibration_compares_the_mean_probability_with_the_share_of_right_ones() -> None:
    top = TopK(
        np.array([[0, 1], [1, 2]], np.int32), np.array([[0.9, 0.25], [1.0, 0.2]], np.float32)
    )
    Y = sp.csr_matrix(np.array([[1, 0, 0], [0, 0, 1]], np.float32))
    low, high = calibration(metrics.judge(top, Y), 2, EvaluateParams(calibration_bins=2))
    assert (low["bin"], low["predictions"], low["right"]) == ("0.00-0.50", 2, 50)
    assert low["probability"] == pytest.approx(22.5)
    assert (high["predictions"], high["right"]) == (2, 50)
    assert high["probability"] == pytest.approx(95)


def test_calibration_of_a_reranked_list_is_that_of_its_probabilities() -> None:
    labels = np.array([[0, 1], [1, 2]], np.int32)
    scores = np.array([[9.0, 3.0], [0.2, 0.1]], np.float32)
    likely = np.array([[0.25, 0.9], [0.2, 1.0]], np.float32)
    Y = sp.csr_matrix(np.array([[1, 0, 0], [0, 0, 1]], np.float32))
    judged = metrics.judge(TopK(labels, scores, "score", probability=likely), Y)
    low, high = calibration(judged, 2, EvaluateParams(calibration_bins=2))
    assert (low["probability"], low["right"]) == (pytest.approx(22.5), 50)
    assert (high["probability"], high["right"]) == (pytest.approx(95), 50)
    assert calibration(metrics.judge(TopK(labels, scores, "score"), Y), 2, FEW) == []


def test_margins_have_no_calibration() -> None:
    top = TopK(np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32), "margin")
    assert calibration(metrics.judge(top, sp.csr_matrix([[1.0]])), 1, FEW) == []


def test_complete_labels_show_who_finds_what_was_hidden(features: Features) -> None:
    observed, complete = features.Y("test"), features.complete("test")
    assert complete is not None
    hidden = sp.csr_matrix(complete - observed)
    hidden.eliminate_zeros()
    oracles = {"sees_observed": observed, "sees_hidden": hidden}
    rankings = {
        name: {"valid": rank(features.Y("valid"), 1.0, 0), "test": rank(10 * Y, 10.0, 1)}
        for name, Y in oracles.items()
    }
    values = evaluate(rankings, features, EvaluateParams(resamples=10)).metrics
    assert values["sees_observed"]["p_at_5"] > values["sees_hidden"]["p_at_5"]
    assert values["sees_hidden"]["missing_recall_at_5"] > 90
    assert values["sees_observed"]["missing_recall_at_5"] < 50
    assert "complete_p_at_5" in values["sees_hidden"]


def test_without_complete_labels_there_is_no_complete_metric(
    tmp_path: Path, candidates: dict[str, dict[str, TopK]]
) -> None:
    result = evaluate(candidates, world(tmp_path, complete=False), FEW)
    names = result.metrics["weak"]
    assert not [name for name in names if name.startswith(("complete_", "missing_"))]


# --- files ---------------------------------------------------------------------------------------


def written(evaluation: Evaluation, root: Path) -> dict[str, bytes]:
    evaluation.write(root / "evaluation", root / "metrics", root / "plots")
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_same_rankings_give_the_same_bytes(
    tmp_path: Path,
    evaluation: Evaluation,
    candidates: dict[str, dict[str, TopK]],
    features: Features,
) -> None:
    again = evaluate(candidates, features, FEW)
    assert written(evaluation, tmp_path / "a") == written(again, tmp_path / "b")


def test_number_of_threads_changes_no_byte(
    tmp_path: Path,
    evaluation: Evaluation,
    candidates: dict[str, dict[str, TopK]],
    features: Features,
) -> None:
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        alone = evaluate(candidates, features, FEW)
    finally:
        numba.set_num_threads(before)
    assert written(alone, tmp_path / "a") == written(evaluation, tmp_path / "b")


def test_small_metrics_are_flat_short_and_in_order(tmp_path: Path, evaluation: Evaluation) -> None:
    undefined = evaluation.metrics["strong"] | {"micro_f1_tuned": math.nan}
    changed = evaluation.metrics | {"strong": undefined}
    written(Evaluation(evaluation.summary, changed, evaluation.tables), tmp_path)
    row = json.loads((tmp_path / "metrics" / "strong.json").read_text())
    names = "p_at_1 p_at_3 p_at_5 ndcg_at_5 psp_at_1 psp_at_3 psp_at_5 rp_at_5 tail_recall_at_5"
    assert list(row) == [*names.split(), "coverage_at_5", "macro_f1_tuned"]  # NaN is left out
    assert row["p_at_5"] == round(evaluation.metrics["strong"]["p_at_5"], 2)


def test_metrics_of_candidates_that_are_gone_are_removed(
    tmp_path: Path, evaluation: Evaluation
) -> None:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "gone.json").write_text("{}")
    (tmp_path / "metrics" / "notes.md").write_text("kept")
    files = written(evaluation, tmp_path)
    assert sorted(f for f in files if f.startswith("metrics/")) == [
        *("metrics/middle.json", "metrics/notes.md", "metrics/strong.json", "metrics/weak.json"),
    ]


def test_written_evaluation_loads_to_four_decimals(tmp_path: Path, evaluation: Evaluation) -> None:
    written(evaluation, tmp_path)
    loaded = Evaluation.load(tmp_path / "evaluation")
    assert list(loaded.metrics) == list(evaluation.metrics)
    for name, values in evaluation.metrics.items():
        assert list(loaded.metrics[name]) == list(values)
        got, wanted = list(loaded.metrics[name].values()), list(values.values())
        assert got == pytest.approx(wanted, abs=5.1e-5, nan_ok=True)
    assert [len(t) for t in loaded.tables.values()] == [len(t) for t in evaluation.tables.values()]
    assert loaded.summary["base"] == "weak"


def test_plots_have_one_line_per_point_and_none_without_a_value(
    tmp_path: Path, evaluation: Evaluation
) -> None:
    written(evaluation, tmp_path)
    plots = {}
    for path in (tmp_path / "plots").glob("*.csv"):
        with open(path, newline="") as file:
            plots[path.stem] = list(csv.DictReader(file))
    assert set(plots) == {"front", "recall_by_frequency", "bands", "calibration"}
    assert [row["candidate"] for row in plots["front"]] == ["weak", "strong", "middle"]
    filled = [b["name"] for b in evaluation.summary["bins"] if b["positives"]]
    assert 1 < len(filled) < len(frequency.BINS)
    shown = [r["bin"] for r in plots["recall_by_frequency"] if r["candidate"] == "weak"]
    assert shown == filled
    assert [r["band"] for r in plots["bands"][:3]] == list(frequency.BANDS)


def test_missing_or_damaged_evaluation_says_what_to_run(
    tmp_path: Path, evaluation: Evaluation
) -> None:
    with pytest.raises(DataError, match="dvc repro evaluate"):
        Evaluation.load(tmp_path / "nowhere")
    written(evaluation, tmp_path)
    (tmp_path / "evaluation" / "front.json").write_text("[")
    with pytest.raises(DataError, match=r"front\.json is damaged"):
        Evaluation.load(tmp_path / "evaluation")


def test_stored_rankings_are_read_from_their_folder(
    tmp_path: Path, candidates: dict[str, dict[str, TopK]]
) -> None:
    for split, top in candidates["weak"].items():
        top.save(tmp_path / f"{split}.npz")
    stored = Stored(tmp_path)
    assert list(stored) == ["valid", "test"]
    assert np.array_equal(stored["test"].labels, candidates["weak"]["test"].labels)


# --- mistakes ------------------------------------------------------------------------------------


def test_unknown_base_is_refused_with_a_suggestion(
    candidates: dict[str, dict[str, TopK]], features: Features
) -> None:
    with pytest.raises(ConfigError, match="no candidate 'stong'; did you mean 'strong'"):
        evaluate(candidates, features, EvaluateParams(base="stong"))


def test_nothing_to_evaluate_is_an_error(features: Features) -> None:
    with pytest.raises(ConfigError, match="no candidate"):
        evaluate({}, features, FEW)


def test_ranking_of_another_dataset_names_the_candidate(
    candidates: dict[str, dict[str, TopK]], features: Features
) -> None:
    wrong = {"valid": candidates["weak"]["valid"], "test": candidates["weak"]["valid"]}
    with pytest.raises(DataError, match="candidate other: the ranking has 60 texts but Y has 90"):
        evaluate(candidates | {"other": wrong}, features, FEW)


def test_params_take_yaml_lists_and_nothing_else() -> None:
    found = config.parse({"ks": [1, 5], "bins": [0, 9]}, EvaluateParams, "params.yaml: evaluate")
    assert found.ks == (1, 5)
    for wrong in ({"ks": [5, 1]}, {"ks": []}, {"ks": ["1"]}, {"ks": [0]}, {"resample": 5}):
        with pytest.raises(ConfigError, match="evaluate"):
            config.parse(wrong, EvaluateParams, "params.yaml: evaluate")


def test_params_do_not_load_numba_or_torch() -> None:
    code = (
        "import sys, coattail.evaluation.scoring; \n"
        "sys.exit(bool({'numba', 'torch'} & {*sys.modules}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the second ranking --------------------------------------------------------------------------


def test_the_second_ranking_adds_figures_and_changes_no_other(
    evaluation: Evaluation, candidates: dict[str, dict[str, TopK]], features: Features
) -> None:
    order = {s: TopK(top.labels, top.scores, "score") for s, top in candidates["weak"].items()}
    more = candidates | {"order": order}
    shown = evaluate(more, features, FEW.model_copy(update={"second_ranking": True}))
    assert not any(name.startswith("reordered") for name in evaluation.metrics["weak"])
    k, q, Y = max(FEW.ks), features.inverse_propensity, features.Y("test")
    for name in candidates:
        found = dict(shown.metrics[name])
        moved = reorder_top5(candidates[name]["test"], q, 0.5, k)
        for m in ("psp", "psndcg"):
            for i in FEW.ks:
                wanted = metrics.ranked(moved, Y, m, i, q)
                assert found.pop(f"reordered_{m}_at_{i}") == pytest.approx(wanted)
        assert found == pytest.approx(evaluation.metrics[name], nan_ok=True)
    assert shown.metrics["weak"][f"reordered_psp_at_{k}"] == pytest.approx(
        evaluation.metrics["weak"][f"psp_at_{k}"]
    ), "the same labels, in another order"
    assert math.isnan(shown.metrics["order"][f"reordered_psp_at_{k}"])
    assert evaluation.summary["ks"] == shown.summary["ks"]
    assert "second_ranking" not in evaluation.summary
