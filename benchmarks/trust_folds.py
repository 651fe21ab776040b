"""How much better does a reranking look on validation than it is, and what does that cost others?

    python benchmarks/trust_folds.py --data data

A base is reranked by a calibration alone (`power: 0`), and its ranking of the validation texts is
taken twice: by the model itself, which has seen their labels, and out of fold, as the pipeline
saves it. Then an ensemble with another candidate chooses its weight by either; test says what the
weights are worth. All figures are nDCG@5.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.evaluation.metrics import judge
from coattail.models.ranking.ensemble import Ensemble, EnsembleParams, combine
from coattail.models.ranking.rerank import Reranker
from coattail.models.ranking.trade_off import RerankParams

CASES = (
    "httn boosted attentionxml",
    "dismec boosted attentionxml",
    "dismec-attentionxml context bonsai",
    "dismec-attentionxml names bonsai",
    "dismec-attentionxml boosted bonsai",
)


class Corpus:
    def __init__(self, data: Path) -> None:
        self.data, self.features = data, Features(data / "features")
        self.Y = {split: self.features.Y(split) for split in ("valid", "test")}
        self.texts = {split: self.features.texts(split) for split in ("valid", "test")}
        self.train_q = self.features.train_inverse_propensity

    def ranked(self, name: str) -> dict[str, TopK]:
        folder = self.data / "ranked" / name
        return {split: TopK.load(folder / f"{split}.npz") for split in ("valid", "test")}

    def ndcg(self, top: TopK, split: str) -> float:
        return judge(top, self.Y[split]).ratio("ndcg", 5).percent

    def row(self, base: str, calibration: str, other: str) -> str:
        top, beside, features = self.ranked(base), self.ranked(other), self.features
        params = RerankParams.model_validate(
            {"base": base, "strategy": "power", "power": 0.0, "calibration": calibration}
        )
        model = Reranker(params, features.label_names)
        known = features.counts, features.inverse_propensity, self.texts["valid"], self.train_q
        model.fit(top["valid"], self.Y["valid"], *known)
        k = top["valid"].k
        test = model.predict(top["test"], k, self.texts["test"])
        cells = [base, calibration, other]
        weights = []
        for valid in (model.predict(top["valid"], k, self.texts["valid"]), model.out_of_fold(k)):
            mean = Ensemble(EnsembleParams(first="reranked", second=other))
            weight = mean.fit(valid, beside["valid"], self.Y["valid"]).weight_
            weights.append((weight, self.ndcg(combine(test, beside["test"], weight, 5), "test")))
            cells.append(f"{self.ndcg(valid, 'valid'):.2f}")
        cells.append(f"{self.ndcg(test, 'test'):.2f}")
        cells += [f"{weight:.2f}: {value:.2f}" for weight, value in weights]
        return "| " + " | ".join([*cells, f"{self.ndcg(beside['test'], 'test'):.2f}"]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--cases", nargs="+", default=CASES, help='"BASE CALIBRATION OTHER"')
    arguments = parser.parse_args()
    corpus = Corpus(arguments.data)
    print("| base | calibration | averaged with | valid, seen | valid, out of fold | test ", end="")
    print("| weight by seen: test | by out of fold: test | other alone, test |")
    print("| --- " * 9 + "|")
    for case in arguments.cases:
        print(corpus.row(*case.split()), flush=True)


if __name__ == "__main__":
    main()
