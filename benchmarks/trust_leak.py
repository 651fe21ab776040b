"""Do rankings by what was learned on validation look better there than they are?

    python benchmarks/trust_leak.py --workspace . --add dismec/boosted dismec-attentionxml/boosted

A leak shows as a gain that only validation has. For every reranking and ensemble of a workspace,
and for learned rerankings that `--add` names (base/calibration): the gain in nDCG@5 over the
candidate it starts from, on validation and on test, and the gap between the two gains beside what
chance alone gives it (95 %, two independent samples of texts). Gains are taken text by text, so
validation texts that are easier than test texts do not count. The last column is the gap of a
model that ranks the texts it was fitted on, which no candidate hands on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.config import read_yaml
from coattail.data.features import Features, Split
from coattail.evaluation import metrics
from coattail.models.ranking.ensemble import Ensemble
from coattail.models.ranking.rerank import Reranker
from coattail.models.ranking.trade_off import RerankParams
from coattail.pipeline.candidates import Candidate, candidates


@dataclass(frozen=True)
class Leak:
    """Gains over the source in points of nDCG@5, and the half width of chance."""

    name: str
    valid: float
    test: float
    chance: float
    seen: float  # the gain on validation texts by the model fitted on them

    @property
    def gap(self) -> float:
        return self.valid - self.test

    @property
    def beyond_chance(self) -> bool:
        return abs(self.gap) > self.chance


class Workspace:
    """The rankings of a project whose pipeline has run."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.features = Features(self.data / "features")
        self.candidates = candidates(read_yaml(folder / "params.yaml"))

    def ranked(self, name: str, split: Split) -> TopK:
        return TopK.load(self.data / "ranked" / name / f"{split}.npz")

    def leaks(self) -> Iterator[Leak]:
        for one in self.candidates.values():
            if one.stage in ("rerank", "ensemble"):
                ranked = self.ranked(one.name, "valid"), self.ranked(one.name, "test")
                yield self.leak(one.name, one.sources[0], *ranked, self._by_its_model(one))

    def added(self, base: str, calibration: str) -> Leak:
        """A learned reranking that the workspace does not have."""
        params = RerankParams(base=base, strategy="learned", calibration=calibration)
        features = self.features
        model = Reranker(params, features.label_names)
        valid, test = self.ranked(base, "valid"), self.ranked(base, "test")
        texts = {s: features.texts(s) if model.reads_texts else None for s in ("valid", "test")}
        known = features.Y("valid"), features.counts, features.inverse_propensity
        model.fit(valid, *known, texts["valid"], features.train_inverse_propensity)
        ranked = model.out_of_fold(valid.k), model.predict(test, test.k, texts["test"])
        seen = model.predict(valid, valid.k, texts["valid"])
        return self.leak(f"{base}/{calibration}", base, *ranked, seen)

    def leak(self, name: str, source: str, valid: TopK, test: TopK, seen: TopK) -> Leak:
        on_valid = self.ndcg(self.ranked(source, "valid"), "valid")
        gains = self.ndcg(valid, "valid") - on_valid
        tested = self.ndcg(test, "test") - self.ndcg(self.ranked(source, "test"), "test")
        spread = np.sqrt(gains.var() / max(len(gains), 1) + tested.var() / max(len(tested), 1))
        by_seen = float((self.ndcg(seen, "valid") - on_valid).mean())
        return Leak(name, float(gains.mean()), float(tested.mean()), float(1.96 * spread), by_seen)

    def ndcg(self, topk: TopK, split: Split) -> NDArray[np.float64]:
        """nDCG@5 of every text, percent."""
        ratio = metrics.judge(topk, self.features.Y(split)).ratio("ndcg", 5)
        return 100 * ratio.numerator / np.maximum(ratio.denominator, 1e-30)

    def _by_its_model(self, one: Candidate) -> TopK:
        """Validation as ranked by the model that learned from it."""
        first, *second = (self.ranked(source, "valid") for source in one.sources)
        folder = self.data / "models" / one.name
        if second:
            return Ensemble.load(folder).predict(first, second[0], first.k)
        model = Reranker.load(folder)
        texts = self.features.texts("valid") if model.reads_texts else None
        return model.predict(first, first.k, texts)


def show(folder: Path, added: list[str]) -> None:
    workspace = Workspace(folder)
    wanted = (tuple(name.rsplit("/", 1)) for name in added)
    rows = [*workspace.leaks(), *(workspace.added(*one) for one in wanted)]
    print("| gain in nDCG@5 | validation | test | gap | chance | gap if it had seen them |")
    print("| --- " * 6 + "|")
    for row in rows:
        gap = f"{row.gap:+.2f}" + (" (beyond chance)" if row.beyond_chance else "")
        gains = f"{row.valid:+.2f} | {row.test:+.2f}"
        print(f"| {row.name} | {gains} | {gap} | ±{row.chance:.2f} | {row.seen - row.test:+.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workspace", type=Path, default=Path("."))
    parser.add_argument("--add", nargs="*", default=[], help="base/calibration")
    arguments = parser.parse_args()
    show(arguments.workspace, arguments.add)


if __name__ == "__main__":
    main()
