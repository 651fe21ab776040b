"""The deep models' contract: learn, rank, save, load, explain, and complain clearly."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from coattail.arrays import Ragged
from coattail.config import parse
from coattail.errors import ConfigError, DataError, DeviceError, ModelError
from coattail.evaluation import metrics
from coattail.labels.frequency import counts, inverse_propensity
from coattail.models.deep import device
from coattail.models.deep.deep_models import build, load
from coattail.models.deep.deep_params import AttentionXmlParams, DeepParams
from coattail.models.deep.estimators.word_model import WordModel
from coattail.testing.network_contract import fit

WORDS, LABELS = 40, 8
SMALL = {"epochs": 12, "batch": 16, "embedding_dim": 12, "dropout": 0.0, "lr": 0.01}
MODELS = {
    "attentionxml": {"hidden": 8, "fc": [16], "candidates": 0, "epochs": 20, "lr": 0.015},
    "attentionxml-candidates": {"hidden": 8, "fc": [8], "candidates": 4, "head_dim": 8},
    "attentionxml-tailmix": {
        "hidden": 8,
        "fc": [8],
        "candidates": 0,
        "mix": "tailmix",
        "lr": 0.03,
        "label_outputs": True,
    },
    "attentionxml-pw": {"hidden": 8, "fc": [8], "candidates": 4, "weighting": "pw"},
    "xmlcnn": {"filters": 8, "bottleneck": 16},
    "xmlcnn-hiddenmix": {"filters": 8, "bottleneck": 16, "mix": "hiddenmix", "weighting": "pwcb"},
    "bilstm": {"hidden": 8, "fc": [16]},
    "bilstm-wordmix": {"hidden": 8, "fc": [16], "mix": "wordmix"},
}


def params_of(name: str, **other: object) -> AttentionXmlParams:
    values = {"model": name.split("-")[0], **SMALL, **MODELS[name], **other}
    return parse(values, DeepParams, name)


def corpus(n: int, seed: int = 0) -> tuple[Ragged, sp.csr_matrix]:
    """Label j is there exactly when word 2 + j is; the other words mean nothing."""
    rng = np.random.default_rng(seed)
    texts, rows, columns = [], [], []
    for i in range(n):
        labels = rng.choice(LABELS, rng.integers(1, 3), replace=False)
        words = np.concatenate([labels + 2, rng.integers(2 + LABELS, WORDS, rng.integers(0, 9))])
        texts.append(rng.permutation(words))
        rows += [i] * len(labels)
        columns += labels.tolist()
    indptr = np.cumsum([0, *(len(t) for t in texts)]).astype(np.int64)
    Y = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(n, LABELS))
    return Ragged(indptr, np.concatenate(texts).astype(np.int32)), Y


def fitted(name: str, n: int = 200, **other: object) -> WordModel:
    tokens, Y = corpus(n)
    return fit(build(params_of(name, **other)), tokens, Y, vocabulary_size=WORDS, threads=1)


@pytest.mark.parametrize("name", MODELS)
def test_learns_separable_labels(name: str) -> None:
    model = fitted(name, **({"epochs": 20} if "mix" in name else {}))
    tokens, Y = corpus(100, seed=1)
    top = model.predict(tokens, 5).validate(LABELS)
    assert metrics.ranked(top, Y, "ndcg", 5) > 90
    assert top.kind == "probability"
    assert top.scores.min() >= 0
    assert top.scores.max() <= 1


@pytest.mark.parametrize("name", ["attentionxml", "attentionxml-candidates", "xmlcnn", "bilstm"])
def test_saved_and_loaded_models_agree_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = fitted(name, epochs=1)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    tokens, _ = corpus(50, seed=1)
    before, after = model.predict(tokens, 4), again.predict(tokens, 4)
    assert np.array_equal(before.labels, after.labels)
    assert np.array_equal(before.scores, after.scores)
    assert again.params == model.params


@pytest.mark.parametrize("name", ["attentionxml-candidates", "attentionxml-tailmix", "xmlcnn"])
def test_same_seed_gives_the_same_bytes_and_another_does_not(name: str, tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        fitted(name, epochs=2, seed=seed).save(tmp_path / folder)
    weights = [(tmp_path / f / "weights.safetensors").read_bytes() for f in "abc"]
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_global_random_state_is_neither_used_nor_changed() -> None:
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = fitted("attentionxml-candidates", epochs=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    second = fitted("attentionxml-candidates", epochs=1)
    assert torch.equal(first.net_.queries, second.net_.queries)


@pytest.mark.parametrize("name", MODELS)
def test_input_is_left_untouched(name: str) -> None:
    tokens, Y = corpus(40)
    kept = [a.copy() for a in (tokens.indptr, tokens.values, Y.indptr, Y.indices, Y.data)]
    for array in (tokens.indptr, tokens.values, Y.indptr, Y.indices, Y.data):
        array.setflags(write=False)
    model = fit(build(params_of(name, epochs=1)), tokens, Y, vocabulary_size=WORDS, threads=1)
    model.predict(tokens, 3)
    for array, copy in zip(
        (tokens.indptr, tokens.values, Y.indptr, Y.indices, Y.data), kept, strict=True
    ):
        assert np.array_equal(array, copy)


@pytest.mark.parametrize("name", MODELS)
def test_k_larger_than_the_number_of_labels_pads(name: str) -> None:
    tokens, _ = corpus(5, seed=1)
    top = fitted(name, n=32, epochs=1).predict(tokens, LABELS + 3)
    assert top.labels.shape == (5, LABELS + 3)
    assert sorted(top.labels[0, :LABELS].tolist()) == list(range(LABELS))
    assert np.all(top.labels[:, LABELS:] == -1)
    assert np.all(np.isneginf(top.scores[:, LABELS:]))


@pytest.mark.parametrize("name", MODELS)
def test_one_label_is_enough(name: str) -> None:
    tokens, Y = corpus(40)
    model = build(params_of(name, epochs=1))
    fit(model, tokens, Y[:, :1], vocabulary_size=WORDS, threads=1)
    assert model.predict(tokens, 3).validate(1).labels[0].tolist() == [0, -1, -1]


@pytest.mark.parametrize("name", MODELS)
def test_label_without_a_training_text_ranks_low(name: str) -> None:
    tokens, Y = corpus(240)
    silent = sp.hstack([Y, sp.csr_matrix((240, 1), dtype=np.float32)]).tocsr()
    model = fit(build(params_of(name, epochs=4)), tokens, silent, vocabulary_size=WORDS, threads=1)
    top = model.predict(tokens, 1)
    assert np.mean(top.labels[:, 0] == LABELS) < 0.1


@pytest.mark.parametrize("name", MODELS)
def test_empty_text_is_ranked_like_the_unknown_word(name: str) -> None:
    model = fitted(name, n=64, epochs=1)
    empty = Ragged(np.array([0, 0, 1]), np.array([1], np.int32))
    top = model.predict(empty, 4)
    assert np.array_equal(top.labels[0], top.labels[1])
    np.testing.assert_allclose(top.scores[0], top.scores[1], rtol=1e-5)


def test_no_text_to_rank_gives_an_empty_ranking() -> None:
    model = fitted("bilstm", n=32, epochs=1)
    top = model.predict(Ragged(np.zeros(1, np.int64), np.zeros(0, np.int32)), 3)
    assert top.labels.shape == (0, 3)


def test_order_and_batch_of_texts_do_not_change_the_ranking() -> None:
    model = fitted("attentionxml-candidates", n=64, epochs=2)
    tokens, _ = corpus(30, seed=1)
    order = np.random.default_rng(0).permutation(30)
    there, back = model.predict(tokens, 3), model.predict(tokens.take(order), 3)
    assert np.array_equal(there.labels[order], back.labels)
    np.testing.assert_allclose(there.scores[order], back.scores, rtol=1e-4)


def test_best_weights_on_validation_are_kept() -> None:
    tokens, Y = corpus(120)
    seen: list[dict[str, float]] = []
    model = build(params_of("attentionxml", epochs=6, swa_from=1, lr=0.05))
    valid = corpus(60, seed=1)
    fit(
        model,
        tokens,
        Y,
        vocabulary_size=WORDS,
        valid=valid,
        threads=1,
        log=lambda numbers, _: seen.append(numbers),
    )
    best = max(numbers["valid_ndcg_at_5"] for numbers in seen)
    assert metrics.ranked(model.predict(valid[0], 5), valid[1], "ndcg", 5) == pytest.approx(best)
    wanted = {"loss", "texts_per_second", *(f"valid_{name}" for name in metrics.FOLLOWED)}
    assert set(seen[0]) == wanted


def test_metrics_of_an_epoch_are_those_of_the_ranking_at_its_end() -> None:
    tokens, Y = corpus(40)
    valid, seen = corpus(30, seed=1), []
    model = build(params_of("bilstm", epochs=1, swa_from=1))
    fit(
        model,
        tokens,
        Y,
        vocabulary_size=WORDS,
        valid=valid,
        threads=1,
        propensity=(0.6, 2.6),
        log=lambda numbers, _: seen.append(numbers),
    )
    top, q = model.predict(valid[0], 5), inverse_propensity(counts(Y), 40, 0.6, 2.6)
    for metric, k in (("psp", 1), ("psp", 5), ("ndcg", 3), ("p", 1), ("psndcg", 5)):
        told = seen[-1][f"valid_{metric}_at_{k}"]
        assert told == pytest.approx(metrics.ranked(top, valid[1], metric, k, q))


def test_training_stops_when_validation_stops_improving() -> None:
    tokens, Y = corpus(64)
    epochs: list[int] = []
    model = build(params_of("xmlcnn", epochs=50, patience=2, lr=0.02))
    fit(
        model,
        tokens,
        Y,
        vocabulary_size=WORDS,
        valid=corpus(20, seed=1),
        threads=1,
        log=lambda _, epoch: epochs.append(epoch),
    )
    assert len(epochs) < 50


def test_explanation_points_at_the_word_of_the_label() -> None:
    model = fitted("attentionxml")
    text = np.full(25, 30, np.int32)
    text[6], text[18] = 2 + 5, 2 + 1
    weights = model.explain(text, [5, 1])
    assert weights.shape == (2, 25)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    # The LSTM carries a word on to its neighbours: the word or one beside it speaks for the label.
    assert abs(weights[0].argmax() - 6) <= 1
    assert abs(weights[1].argmax() - 18) <= 1


def test_explanation_spreads_a_step_over_its_words() -> None:
    model = fitted("attentionxml", n=32, epochs=1, words_per_step=2)
    weights = model.explain(np.array([3, 4, 5], np.int32), [0])
    assert weights.shape == (1, 3)
    assert weights[0, 0] == weights[0, 1]


def test_models_without_attention_cannot_explain() -> None:
    with pytest.raises(ModelError, match="no attention"):
        fitted("bilstm", n=32, epochs=1).explain(np.array([3]), [0])


# --- complaints ----------------------------------------------------------------------------------


def test_token_id_outside_the_vocabulary_names_the_text() -> None:
    tokens = Ragged(np.array([0, 2, 3]), np.array([2, 3, WORDS], np.int32))
    Y = sp.csr_matrix(np.eye(2, dtype=np.float32))
    with pytest.raises(DataError, match=rf"text 1 holds token id {WORDS}.*{WORDS} words"):
        fit(build(params_of("bilstm")), tokens, Y, vocabulary_size=WORDS)


def test_word_vectors_of_another_vocabulary_are_refused() -> None:
    tokens, Y = corpus(10)
    with pytest.raises(DataError, match=r"shape \(7, 3\); wanted \(40, dimension\)"):
        fit(build(params_of("bilstm")), tokens, Y, vocabulary_size=WORDS, vectors=np.ones((7, 3)))


def test_texts_and_labels_of_different_number_are_refused() -> None:
    tokens, Y = corpus(10)
    with pytest.raises(DataError, match="10 texts but 9 rows"):
        fit(build(params_of("bilstm")), tokens, Y[:9], vocabulary_size=WORDS)


def test_given_vectors_set_the_dimension_and_may_stay_frozen() -> None:
    tokens, Y = corpus(40)
    vectors = np.random.default_rng(0).normal(size=(WORDS, 5)).astype(np.float32)
    model = build(params_of("bilstm", epochs=1, train_embeddings=False))
    fit(model, tokens, Y, vocabulary_size=WORDS, vectors=vectors, threads=1)
    table = model.net_.words.table.weight.detach().numpy()
    assert np.array_equal(table[1:], vectors[1:])
    assert not table[0].any()


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert device.resolve("auto") == "cpu"
    assert device.resolve("cpu") == "cpu"
    for wanted in ("cuda", "cuda:1", "mps"):
        with pytest.raises(DeviceError, match=wanted):
            device.resolve(wanted)
    with pytest.raises(DeviceError, match="unknown"):
        device.resolve("tpu-of-my-dreams")


def test_device_names_resolve_where_there_are_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device.resolve("auto") == "cuda:0"
    assert device.resolve("cuda:1") == "cuda:1"
    with pytest.raises(DeviceError, match="2 CUDA devices"):
        device.resolve("cuda:2")


def test_out_of_memory_names_the_parameters_to_lower() -> None:
    for error in (torch.OutOfMemoryError("CUDA out of memory."), MemoryError("no more")):
        with (
            pytest.raises(DeviceError, match=r"lower label_block \(now 9\), batch \(now 3\)"),
            device.explain_memory("cuda:0", label_block=9, batch=3),
        ):
            raise error
    with pytest.raises(RuntimeError, match="shapes"), device.explain_memory("cpu", batch=3):
        raise RuntimeError("shapes do not match")


def test_a_model_folder_does_not_remember_its_device(tmp_path: Path) -> None:
    model = fitted("bilstm", n=32, epochs=1)
    model.device_ = "cuda:3"  # as if trained on another machine
    model.save(tmp_path / "model")
    assert "cuda" not in (tmp_path / "model" / "params.json").read_text()
    assert load(tmp_path / "model", device="cpu").device_ == "cpu"


def test_incomplete_or_foreign_model_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"params\.json is missing"):
        load(tmp_path)
    fitted("bilstm", n=32, epochs=1).save(tmp_path / "model")
    facts = json.loads((tmp_path / "model" / "params.json").read_text())
    facts["n_labels"] = 3
    (tmp_path / "model" / "params.json").write_text(json.dumps(facts))
    with pytest.raises(ModelError, match="does not fit"):
        load(tmp_path / "model")
    (tmp_path / "model" / "weights.safetensors").unlink()
    with pytest.raises(ModelError, match="missing"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "bilstm", "mix": "tailmix"}, "tailmix"),
        ({"model": "xmlcnn", "tree": "shallow"}, "only attentionxml"),
        ({"model": "attentionxml", "tree": "shallow", "candidates": 0}, "needs candidates"),
        ({"model": "attentionxml", "hiden": 3}, "hidden"),
        ({"model": "transformer"}, "model"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(values, DeepParams, "train_deep.x")


def test_a_checkpoint_of_another_training_is_not_used(tmp_path: Path) -> None:
    tokens, Y = corpus(40)
    checkpoint = tmp_path / "state.safetensors"
    for folder, seed in (("a", 1), ("b", 2)):
        model = build(params_of("bilstm", epochs=1, seed=seed))
        fit(model, tokens, Y, vocabulary_size=WORDS, threads=1, checkpoint=checkpoint)
        model.save(tmp_path / folder)
    checkpoint.write_bytes(b"not a checkpoint")
    fit(model, tokens, Y, vocabulary_size=WORDS, threads=1, checkpoint=checkpoint)
    model.save(tmp_path / "c")
    weights = [(tmp_path / f / "weights.safetensors").read_bytes() for f in "abc"]
    assert weights[0] != weights[1]
    assert weights[1] == weights[2]
