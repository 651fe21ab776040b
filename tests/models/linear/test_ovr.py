"""One-vs-rest: optimum, weights, pruning, memory, resuming, blocks of labels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import unbiased_losses
from coattail.arrays import load_csr, save_csr
from coattail.config import parse
from coattail.data.features import Block
from coattail.errors import ConfigError, ModelError
from coattail.kernels.solvers import active_set
from coattail.labels.frequency import inverse_propensity
from coattail.models.linear import problem_groups
from coattail.models.linear.linear_models import Blocks, build, fit_blocks, load
from coattail.models.linear.linear_params import LinearParams, OvrParams
from coattail.models.linear.ovr import Ovr
from coattail.models.linear.plt import Plt
from coattail.testing.model_contract import ModelContract, digest, same, separable

SHARED = Path(__file__).parents[3].parent / "shared" / "data"


class TestOvr(ModelContract):
    def make(self):
        return Ovr(OvrParams())

    def load(self, folder):
        return Ovr.load(folder)


class TestOvrLogistic(ModelContract):
    def make(self):
        return Ovr(OvrParams(loss="logistic", C=10.0, output="probability", weighting="pwcb"))

    def load(self, folder):
        return load(folder)


def noisy(n=700, d=60, n_labels=5, seed=3):
    """Labels from random linear rules with noise: no margin is clean, many rows are active."""
    rng = np.random.default_rng(seed)
    X = sp.random(n, d, 0.15, "csr", np.float32, random_state=rng)
    scores = X @ rng.normal(size=(d, n_labels)) + rng.normal(scale=0.3, size=(n, n_labels))
    Y = scores > np.quantile(scores, [0.5, 0.8, 0.9, 0.97, 0.995], axis=0).diagonal()
    return X, sp.csr_matrix(Y.astype(np.float32))


def objective(X, y, w, b, loss, c_pos, c_neg):
    margin = np.where(y, 1, -1) * (X @ w + b)
    each = np.logaddexp(0, -margin) if loss == "logistic" else np.maximum(0, 1 - margin) ** 2
    return 0.5 * (w @ w + b * b) + np.sum(np.where(y, c_pos, c_neg) * each)


def test_unbiased_logistic_ends_where_the_estimate_has_its_minimum():
    from scipy.optimize import minimize

    X, Y = noisy(300, 20)
    model = Ovr(
        OvrParams(loss="logistic", unbiased=True, C=0.4, eps=1e-6, max_epochs=300, prune=0.0)
    ).fit(X, Y)
    counts = np.diff(sp.csc_matrix(Y).indptr)
    p = 1 / inverse_propensity(counts, 300)
    assert p.min() < 0.35  # a loss that is far from the plain one
    dense = np.hstack([X.toarray(), np.ones((300, 1))]).astype(np.float64)
    for label in range(Y.shape[1]):
        y = Y[:, [label]].toarray().ravel()

        def estimate(w, y=y, p=p[label]):
            losses = unbiased_losses.unbiased("bce", y, dense @ w, p)
            return 0.5 * w @ w + 0.4 * losses.sum()

        best = minimize(estimate, np.zeros(21), method="BFGS", options={"gtol": 1e-6})
        mine = np.append(model.W_[:, [label]].toarray().ravel(), model.bias_[label])
        assert mine == pytest.approx(best.x, abs=2e-3)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({}, "falls without end"), ({"loss": "logistic", "weighting": "pw"}, "weighting: none")],
)
def test_unbiased_is_refused_where_it_means_nothing(changed, reason):
    with pytest.raises(ConfigError, match=reason):
        parse({"model": "ovr", "unbiased": True, **changed}, LinearParams, "here")


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_classifiers_are_divided_by_a_power_of_their_norm(power):
    X, Y = noisy()
    Y = sp.hstack([Y, sp.csr_matrix((Y.shape[0], 1))], format="csr")  # and a label without a text
    plain = Ovr(OvrParams()).fit(X, Y)
    other = Ovr(OvrParams(shrink_norms=power)).fit(X, Y)
    for label in range(5):
        w = plain.W_[:, [label]].toarray().ravel()
        by = np.sqrt(np.sum(w**2)) ** power
        assert other.W_[:, [label]].toarray().ravel() == pytest.approx(w / by, rel=1e-5)
        assert other.bias_[label] == pytest.approx(plain.bias_[label] / by, rel=1e-5)
    assert np.isneginf(other.bias_[5])


def twice(X, Y):
    return sp.vstack([X, X], format="csr"), sp.vstack([Y, Y], format="csr")


@pytest.mark.parametrize("weighting", ["pw", "pwcb", "pwcb_first"])
def test_weights_count_texts_and_not_their_copies(weighting):
    X, Y = noisy(200, 30)
    exact = {"weighting": weighting, "eps": 1e-5, "gap": 1e-7, "max_epochs": 3000, "prune": 0.0}
    once = Ovr(OvrParams(**exact)).fit(X, Y)
    # Every text twice at half the C is the same problem, if weights follow from the originals.
    blocks = [Block("all", *twice(X, Y), np.arange(5, dtype=np.int32))]
    copies = fit_blocks(OvrParams(**exact, C=0.5), None, blocks, 5, counted=Y)
    assert copies.W_.toarray() == pytest.approx(once.W_.toarray(), abs=2e-3)
    wrong = fit_blocks(OvrParams(**exact, C=0.5), None, blocks, 5)
    assert wrong.W_.toarray() != pytest.approx(once.W_.toarray(), abs=2e-2)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("weighting", ["none", "pw", "pwcb"])
@pytest.mark.parametrize("C", [0.3, 3.0])
def test_objective_equals_that_of_scikit_learn(loss, weighting, C):
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    X, Y = noisy()
    params = OvrParams(
        loss=loss, weighting=weighting, C=C, eps=1e-5, gap=1e-7, max_epochs=3000, prune=0.0,
        negatives=40,
    )  # fmt: skip
    model = Ovr(params).fit(X, Y)
    counts = np.diff(sp.csc_matrix(Y).indptr)
    weights = problem_groups.positive_weights(params, counts, X.shape[0])
    with_bias = sp.hstack([X, np.ones((X.shape[0], 1))], format="csr")
    for label in range(Y.shape[1]):
        y = Y[:, [label]].toarray().ravel() > 0
        peer = (
            LogisticRegression(
                C=C, solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=9999
            )
            if loss == "logistic"
            else LinearSVC(C=C, dual=False, fit_intercept=False, tol=1e-10, max_iter=9999)
        )
        w = peer.fit(with_bias, y, np.where(y, weights[label], 1.0)).coef_.ravel()
        c = (C * weights[label], C)
        best = objective(X, y, w[:-1], w[-1], loss, *c)
        mine = model.W_[:, [label]].toarray().ravel().astype(np.float64)
        reached = objective(X, y, mine, float(model.bias_[label]), loss, *c)
        assert reached == pytest.approx(best, rel=2e-5)


def test_default_tolerances_come_close_to_the_optimum():
    X, Y = noisy(n=1500, seed=5)
    exact = OvrParams(eps=1e-5, gap=1e-7, max_epochs=3000, prune=0.0)
    loose = OvrParams(prune=0.0)
    rows = [Ovr(p).fit(X, Y) for p in (exact, loose)]
    for label in range(Y.shape[1]):
        y = Y[:, [label]].toarray().ravel() > 0
        best, reached = (
            objective(
                X, y, m.W_[:, [label]].toarray().ravel().astype(float), float(m.bias_[label]),
                "squared_hinge", 1, 1,
            )
            for m in rows
        )  # fmt: skip
        assert best <= reached * (1 + 1e-6)
        assert reached <= 1.01 * best


def test_heavier_positives_raise_the_scores_of_positives():
    X, Y = noisy()
    plain = Ovr(OvrParams()).fit(X, Y)
    heavy = Ovr(OvrParams(weighting="pw")).fit(X, Y)
    rare = sp.csc_matrix(Y)[:, 4].indices
    margin = [(m.predict(X[rare], 5).to_csr(5)[:, [4]].toarray()).mean() for m in (plain, heavy)]
    assert margin[1] > margin[0] + 0.1


def test_tail_labels_take_their_own_c():
    X, Y = noisy()
    mixed = Ovr(OvrParams(tail_c=7.0, head_labels=0.4)).fit(X, Y)
    plain, strong = Ovr(OvrParams()).fit(X, Y), Ovr(OvrParams(C=7.0)).fit(X, Y)
    for label, twin in enumerate([plain, plain, strong, strong, strong]):
        assert (mixed.W_[:, [label]] != twin.W_[:, [label]]).nnz == 0


def test_pruned_weights_are_gone_and_the_others_unchanged():
    X, Y = noisy()
    full, pruned = Ovr(OvrParams(prune=0.0)).fit(X, Y), Ovr(OvrParams(prune=0.2)).fit(X, Y)
    assert 0 < pruned.W_.nnz < full.W_.nnz
    assert np.abs(pruned.W_.data).min() >= 0.2
    dense = full.W_.toarray()
    assert np.array_equal(np.where(np.abs(dense) >= 0.2, dense, 0), pruned.W_.toarray())
    assert np.array_equal(full.bias_, pruned.bias_)


def test_block_path_and_word_path_give_the_same_bits(monkeypatch):
    X, Y = noisy(n=900)
    model = Ovr(OvrParams(prune=0.0)).fit(X, Y)
    monkeypatch.setenv("COATTAIL_THREADS", "1")
    answers = []
    for dense in (True, False):
        monkeypatch.setattr(Ovr, "_prefers_blocks", lambda self, X, dense=dense: dense)
        answers.append(model.predict(X, 3))
    assert same(*answers)
    scores = np.asarray(X @ model.W_.toarray() + model.bias_)
    np.testing.assert_allclose(answers[0].scores[:, 0], scores.max(axis=1), rtol=1e-4, atol=1e-5)


def test_labels_never_seen_are_never_given():
    X, Y = separable()
    wide = sp.hstack([sp.csr_matrix((Y.shape[0], 2), dtype=np.float32), Y], format="csr")
    top = Ovr(OvrParams()).fit(X, wide).predict(X, wide.shape[1])
    assert set(np.unique(top.labels)) == {-1, *range(2, wide.shape[1])}


def test_small_memory_budget_changes_no_weight():
    rng = np.random.default_rng(0)
    X, Y = separable(400, n_labels=90)
    words = sp.random(400, 300_000, 2e-5, "csr", np.float32, random_state=rng)
    X = sp.hstack([X, words], format="csr")
    large, small = Ovr(OvrParams()), Ovr(OvrParams(memory_mb=16))
    counts = np.ones(90, np.int64)
    assert len(small._groups(counts, X.shape[1])) > len(large._groups(counts, X.shape[1]))
    large.fit(X, Y), small.fit(X, Y)
    assert (large.W_ != small.W_).nnz == 0


def test_margins_become_probabilities_on_request():
    X, Y = separable()
    margin = Ovr(OvrParams()).fit(X, Y).predict(X, 6)
    chance = Ovr(OvrParams(output="probability")).fit(X, Y).predict(X, 6)
    assert (margin.kind, chance.kind) == ("margin", "probability")
    assert chance.scores.min() >= 0
    assert chance.scores.max() <= 1


def test_interrupted_fit_goes_on_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    X, Y = separable(400, n_labels=80)
    monkeypatch.setattr("coattail.models.linear.ovr.GROUP", 32)
    monkeypatch.setenv("COATTAIL_THREADS", "1")
    Ovr(OvrParams()).fit(X, Y).save(tmp_path / "whole")
    done, real = [], active_set.train

    def dies_at_the_third(*arguments):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return real(*arguments)

    monkeypatch.setattr(active_set, "train", dies_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        Ovr(OvrParams(), partial=tmp_path / "partial").fit(X, Y)
    assert len(list((tmp_path / "partial").rglob("*.npz"))) == 2
    calls = []
    monkeypatch.setattr(active_set, "train", lambda *a: (calls.append(1), real(*a))[1])
    resumed = Ovr(OvrParams(), partial=tmp_path / "partial").fit(X, Y)
    assert len(calls) == 1  # three groups, two were done
    resumed.save(tmp_path / "resumed")
    assert digest(tmp_path / "whole") == digest(tmp_path / "resumed")
    assert not (tmp_path / "partial").exists()


def test_broken_partial_file_is_trained_again(tmp_path):
    X, Y = separable()
    whole = Ovr(OvrParams(), partial=tmp_path / "partial").fit(X, Y)
    for path in (tmp_path / "partial").rglob("*.npz"):
        path.write_bytes(path.read_bytes()[:100])
    again = Ovr(OvrParams(), partial=tmp_path / "partial").fit(X, Y)
    assert (whole.W_ != again.W_).nnz == 0


KILLED = """
import sys, os
os.environ["COATTAIL_THREADS"] = "1"
from coattail.arrays import load_csr
from coattail.models.linear import ovr
from coattail.models.linear.linear_params import OvrParams
ovr.GROUP = 32
folder = sys.argv[1]
model = ovr.Ovr(OvrParams(), partial=folder + "/partial")
model.fit(load_csr(folder + "/X"), load_csr(folder + "/Y")).save(folder + "/model")
"""


def test_killed_process_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    rng = np.random.default_rng(4)
    X = sp.random(3000, 400, 0.1, "csr", np.float32, random_state=rng)
    Y = sp.random(3000, 600, 0.02, "csr", np.float32, random_state=rng)
    Y.data[:] = 1
    save_csr(tmp_path / "X", X)
    save_csr(tmp_path / "Y", Y)
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(active_set.__file__).parents[2])}
    child = subprocess.Popen(command, env=environment)
    give_up = time.monotonic() + 300
    while not list(tmp_path.glob("partial/*.npz")) and time.monotonic() < give_up:
        assert child.poll() is None, "finished before it could be killed"
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    left = list(tmp_path.glob("partial/*.npz"))
    assert left
    assert not (tmp_path / "model").exists()
    subprocess.run(command, check=True, env=environment)
    monkeypatch.setattr("coattail.models.linear.ovr.GROUP", 32)
    rows = (load_csr(tmp_path / "X"), load_csr(tmp_path / "Y"))
    Ovr(OvrParams()).fit(*rows).save(tmp_path / "whole")
    assert digest(tmp_path / "model") == digest(tmp_path / "whole")


def test_blocks_train_apart_and_rank_together(tmp_path):
    X, Y = separable(300, n_labels=6)
    head, tail = np.array([0, 2, 4], np.int32), np.array([5, 1, 3], np.int32)
    blocks = [
        Block("head", X, sp.csr_matrix(Y[:, head]), head),
        Block("tail", X, sp.csr_matrix(Y[:, tail]), tail),
    ]
    joint = fit_blocks(OvrParams(), None, blocks, 6, partial=tmp_path / "partial")
    assert isinstance(joint, Blocks)
    # One-vs-rest labels do not see each other, but the seeds of their descents are local ids.
    plain = Ovr(OvrParams()).fit(X, Y).predict(X, 2)
    top = joint.predict(X, 2)
    assert np.mean(top.labels[:, 0] == plain.labels[:, 0]) > 0.95
    joint.save(tmp_path / "model")
    assert not (tmp_path / "partial").exists()
    assert same(top, load(tmp_path / "model").predict(X, 2))


def test_single_block_of_all_labels_is_the_plain_model(tmp_path):
    X, Y = separable()
    model = fit_blocks(OvrParams(), None, [Block("all", X, Y, np.arange(6, dtype=np.int32))], 6)
    assert isinstance(model, Ovr)
    with pytest.raises(ModelError, match="nothing to merge, for data/features/tfidf/train is one"):
        fit_blocks(OvrParams(merge="platt"), None, [Block("all", X, Y, np.arange(6))], 6)


def test_memory_mapped_matrices_are_welcome(tmp_path):
    X, Y = separable()
    save_csr(tmp_path / "X", X)
    save_csr(tmp_path / "Y", Y)
    mapped = Ovr(OvrParams()).fit(load_csr(tmp_path / "X"), load_csr(tmp_path / "Y"))
    plain = Ovr(OvrParams()).fit(X, Y)
    assert (mapped.W_ != plain.W_).nnz == 0
    assert len(active_set.train.signatures) == 1  # and no second compilation


def mapped(array):
    """Whether the memory of an array is a file's."""
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


def test_loaded_weights_stay_on_disk_and_serve_one_text_at_a_time(tmp_path):
    X, Y = separable(120, n_labels=6, seed=8)
    model = Ovr(OvrParams()).fit(X, Y)
    model.save(tmp_path / "m")
    loaded = Ovr.load(tmp_path / "m")
    assert mapped(loaded.W_.data)
    assert mapped(loaded.W_.indices)
    together = model.predict(X, 3)
    for i in range(5):
        one = loaded.predict(X[i : i + 1], 3)
        np.testing.assert_array_equal(one.labels[0], together.labels[i])
        np.testing.assert_array_equal(one.scores[0], together.scores[i])
    assert mapped(loaded.W_.data)  # predicting one text copied nothing


def test_mismatched_matrices_are_named():
    X, Y = separable()
    with pytest.raises(ModelError, match="240 texts but Y has 239"):
        Ovr(OvrParams()).fit(X, Y[:-1])
    with pytest.raises(ModelError, match="nothing to learn"):
        Ovr(OvrParams()).fit(X, sp.csr_matrix(Y.shape, dtype=np.float32))
    with pytest.raises(ModelError, match="knows 16 words, X has 15"):
        Ovr(OvrParams()).fit(X, Y).predict(X[:, :-1], 1)


def test_params_choose_the_model_and_reject_nonsense():
    assert isinstance(build(parse({"model": "ovr"}, LinearParams, "here")), Ovr)
    assert isinstance(build(parse({"model": "plt", "beam": 3}, LinearParams, "here")), Plt)
    with pytest.raises(ConfigError, match="did you mean 'weighting'"):
        parse({"model": "ovr", "weigthing": "pw"}, LinearParams, "here")
    with pytest.raises(ConfigError, match="beta"):
        parse({"model": "ovr", "beta": 1.0}, LinearParams, "here")


def test_folder_of_something_else_is_a_clear_error(tmp_path):
    (tmp_path / "params.json").write_text('{"model": "oracle"}')
    with pytest.raises(ModelError, match="cannot be loaded: train_linear has no model 'oracle'"):
        load(tmp_path)


@pytest.mark.shared_data
def test_quality_on_bibtex_is_that_of_the_field():
    if not SHARED.exists():
        pytest.skip("needs ../shared/data")
    from coattail.arrays import unit_rows
    from coattail.data.formats.xmc import read_xmc

    (X, Y), (Xt, Yt) = (read_xmc(SHARED / "bibtex" / f"{s}.txt") for s in ("train", "test"))
    top = Ovr(OvrParams()).fit(unit_rows(X), Y).predict(unit_rows(Xt), 5)
    hits = Yt.toarray()[np.arange(Yt.shape[0])[:, None], top.labels]
    assert hits[:, 0].mean() > 0.62  # DiSMEC and Parabel: 0.63 to 0.64
    assert hits.mean() > 0.27
