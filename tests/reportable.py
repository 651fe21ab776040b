"""A small workspace made by real library calls, with texts and labels that try to break a page."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from coattail.arrays import TopK
from coattail.config import parse
from coattail.data.corpus import PreprocessParams
from coattail.data.demo_corpus import DemoParams, generate
from coattail.data.features import Features
from coattail.data.preprocess import prepare
from coattail.evaluation.scoring import EvaluateParams, Stored, evaluate
from coattail.labels import tree, tree_building, tree_params
from coattail.models.deep import deep_models as deep
from coattail.models.deep.deep_params import DeepParams
from coattail.models.linear import linear_models as linear
from coattail.models.linear.linear_params import LinearParams
from coattail.models.ranking.ensemble import Ensemble, EnsembleParams
from coattail.models.ranking.rerank import Reranker
from coattail.models.ranking.trade_off import RerankParams
from coattail.pipeline.candidates import candidates, stage_addresses
from coattail.testing.network_contract import fit
from coattail.tracking.record import Point, RunRecord

HOSTILE_LABEL = "</script><script>document.title='broken'</script><b>bold"
HOSTILE_TEXT = (
    "</script><img src=x onerror=\"document.title='broken'\"> {{numbers}} \u2028 & so on."
)

PARAMS = """
dataset: {name: tiny <corpus>, title: A corpus for <tests>}
build_plt: {flat: {method: flat}, balanced: {method: balanced, leaf: 8}}
augment_tails: {}
train_linear:
  lines: {model: ovr, train: features/tfidf/train, tree: flat}
  branches: {model: plt, train: features/tfidf/train, tree: balanced}
  forest: {model: fastxml, train: features/tfidf/train, tree: flat, trees: 2}
train_deep:
  attention: {model: attentionxml, tree: flat, epochs: 2, hidden: 8, fc: [8], embedding_dim: 8}
  cnn: {model: xmlcnn, tree: flat, epochs: 1, filters: 8, bottleneck: 8, embedding_dim: 8}
transfer: {}
ensemble: {mean: {first: lines, second: attention}}
rerank: {again: {base: lines, strategy: propensity}}
evaluate: {base: lines, resamples: 50}
report: {examples: 8}
"""


_made: dict[str, Path] = {}


def shared_workspace(factory: pytest.TempPathFactory) -> Path:
    """The workspace, made once per process; tests that change something copy it."""
    if "tiny" not in _made:
        _made["tiny"] = workspace(factory.mktemp("workspace"))
    return _made["tiny"]


def workspace(folder: Path) -> Path:
    """Train, rank and evaluate everything of PARAMS under ``folder``; return it."""
    content = YAML(typ="safe").load(PARAMS)
    (folder / "params.yaml").write_text(PARAMS)
    data = folder / "data"
    corpus = DemoParams(train=300, valid=60, test=100, labels=40, words=300)
    prepare(_raw(folder / "raw", corpus), data / "features", PreprocessParams())
    features = Features(data / "features")
    for name, params in content["build_plt"].items():
        built = tree_building.build(
            parse(params, tree_params.TreeParams, name), features.X("train"), features.Y("train")
        )
        tree.save(data / "plt" / name, built)
    _train(data, content, features)
    scored = evaluate(
        {name: Stored(data / "ranked" / name) for name in candidates(content)},
        features,
        parse(content["evaluate"], EvaluateParams, "evaluate"),
    )
    scored.write(data / "evaluation", folder / "metrics", folder / "plots")
    _leave_results(data, content)
    return folder


def _raw(folder: Path, corpus: DemoParams) -> Path:
    """The demo corpus, its most frequent label renamed and every text with something added."""
    folder.mkdir(parents=True)
    files = generate(corpus, folder)
    counts: dict[str, int] = {}
    documents = {}
    for split in ("train", "valid", "test"):
        with gzip.open(folder / files[split], "rt", encoding="utf-8") as file:
            documents[split] = [json.loads(line) for line in file]
        for document in documents[split]:
            for label in document["labels"]:
                counts[label] = counts.get(label, 0) + 1
    frequent = max(counts, key=lambda label: (counts[label], label))
    for split, rows in documents.items():
        for row in rows:
            row["text"] += " " + HOSTILE_TEXT
            row["labels"] = [HOSTILE_LABEL if name == frequent else name for name in row["labels"]]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    manifest = {"name": "tiny <corpus>", "format": "jsonl"}
    manifest["files"] = {split: f"{split}.jsonl" for split in documents}
    manifest["propensity"] = {"A": 0.55, "B": 1.5}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def _train(data: Path, content: dict, features: Features) -> None:
    for name, given in content["train_linear"].items():
        params = parse(given, LinearParams, name).of_dataset(features.propensity)
        model = linear.build(params, tree.load(data / "plt" / params.tree))
        model.fit(features.X("train"), features.Y("train")).save(data / "models" / name)
        for split in ("valid", "test"):
            _keep(data, name, split, model.predict(features.X(split), 20))
    for name, given in content["train_deep"].items():
        params = parse(given, DeepParams, name)
        network = fit(
            deep.build(params),
            features.tokens("train"),
            features.Y("train"),
            vocabulary_size=len(features.vocabulary),
            trees=tree.load(data / "plt" / params.tree),
            propensity=features.propensity,
            threads=1,
        )
        network.save(data / "models" / name)
        for split in ("valid", "test"):
            _keep(data, name, split, network.predict(features.tokens(split), 20))
    for name, given in content["ensemble"].items():
        params = parse(given, EnsembleParams, name)
        first = Stored(data / "ranked" / params.first)
        second = Stored(data / "ranked" / params.second)
        mean = Ensemble(params).fit(first["valid"], second["valid"], features.Y("valid"))
        mean.save(data / "models" / name)
        for split in ("valid", "test"):
            _keep(data, name, split, mean.predict(first[split], second[split], 20))
    for name, given in content["rerank"].items():
        params = parse(given, RerankParams, name)
        base = Stored(data / "ranked" / params.base)
        again = Reranker(params).fit(
            base["valid"], features.Y("valid"), features.counts, features.inverse_propensity
        )
        again.save(data / "models" / name)
        for split in ("valid", "test"):
            _keep(data, name, split, again.predict(base[split], 20))


def _keep(data: Path, name: str, split: str, top: TopK) -> None:
    top.save(data / "ranked" / name / f"{split}.npz")


def _leave_results(data: Path, content: dict) -> None:
    for address in stage_addresses(content):
        stage, _, variant = address.partition("@")
        given = (content.get(stage) or {}).get(variant, {}) if variant else {}
        tags = {"git.commit": "0123456789abcdef", "git.dirty": "true", "version.numpy": "2.0"}
        record = RunRecord(stage, variant or None, given, 0, 12_340, "FINISHED", tags=tags)
        if stage == "train_deep":
            record.history = [Point("valid_ndcg_at_5", 50.0 + step, step, 0) for step in range(3)]
        record.result().save(data)
        journal = data.parent / ".dvc" / "tmp" / "coattail" / "journal"
        record.save(journal / f"{record.result().md5}.json")
