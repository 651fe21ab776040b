"""Do rankings by what was learned on validation look better there than they are?

    python benchmarks/trust_leak.py --workspace . --add dismec/boosted dismec-attentionxml/boosted

A leak shows as a gain that only validation has. For every reranking and ensemble of a workspace,
and for calibrations that `--add` names (base/calibration), by which the base is sorted again: the
gain in nDCG@5 over the candidate it starts from, on validation and on test, and the gap between the
two gains beside what chance alone gives it (95 %, two independent samples of texts). Gains are
taken text by text, so validation texts that are easier than test texts do not count. The last
column is the gap of a model that ranks the texts it was fitted on, which no candidate hands on.

Where test texts are of another kind than validation texts, gains differ without any leak. So what
`--add` names is also judged on validation and test texts pooled and divided again at random.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from trust_floors import Pool

from coattail.arrays import TopK
from coattail.config import read_yaml
from coattail.data.features import Features
from coattail.data.stored import Split
from coattail.evaluation import metrics
from coattail.labels.frequency import counts
from coattail.models.ranking.ensemble import Ensemble
from coattail.models.ranking.rerank import Reranker
from coattail.models.ranking.trade_off import RerankParams
from coattail.pipeline.candidates import Candidate, candidates

DIVISIONS = 3


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

    def divided(self, base: str, calibration: str) -> NDArray[np.float64]:
        """Mean gap by out-of-fold and by seen rankings, where chance alone divides the texts."""
        pool, features = Pool(self.data), self.features
        model = Reranker(_params(base, calibration), features.label_names)
        top, gaps = pool.ranking(base), []
        texts = features.texts("valid") + features.texts("test") if model.reads_texts else None
        for a, b in pool.divisions(DIVISIONS):
            counted = pool.counts + counts(pool.Y[a])
            q, blind = pool.q(counted, pool.n_train + len(a)), pool.q(pool.counts, pool.n_train)
            own, other = (None if texts is None else [texts[i] for i in part] for part in (a, b))
            model.fit(top.rows(a), pool.Y[a], counted, q, own, blind)
            ranked = model.out_of_fold(5), model.predict(top.rows(a), 5, own)
            new = model.predict(top.rows(b), 5, other)
            on_b = (_ndcg(new, pool.Y[b]) - _ndcg(top.rows(b), pool.Y[b])).mean()
            on_a = [
                (_ndcg(one, pool.Y[a]) - _ndcg(top.rows(a), pool.Y[a])).mean() for one in ranked
            ]
            gaps.append(np.array(on_a) - on_b)
        return np.mean(gaps, axis=0)

    def added(self, base: str, calibration: str) -> Leak:
        """The base sorted by a calibrated probability alone, which the workspace does not have."""
        features = self.features
        model = Reranker(_params(base, calibration), features.label_names)
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
        return _ndcg(topk, self.features.Y(split))

    def _by_its_model(self, one: Candidate) -> TopK:
        """Validation as ranked by the model that learned from it."""
        first, *second = (self.ranked(source, "valid") for source in one.sources)
        folder = self.data / "models" / one.name
        if second:
            return Ensemble.load(folder).predict(first, second[0], first.k)
        model = Reranker.load(folder)
        texts = self.features.texts("valid") if model.reads_texts else None
        return model.predict(first, first.k, texts)


def _params(base: str, calibration: str) -> RerankParams:
    return RerankParams(base=base, strategy="power", power=0.0, calibration=calibration)


def _ndcg(topk: TopK, Y: sp.csr_matrix) -> NDArray[np.float64]:
    """nDCG@5 of every text, percent."""
    ratio = metrics.judge(topk, Y).ratio("ndcg", 5)
    return 100 * ratio.numerator / np.maximum(ratio.denominator, 1e-30)


def show(folder: Path, added: list[str]) -> None:
    workspace = Workspace(folder)
    wanted = [tuple(name.rsplit("/", 1)) for name in added]
    rows = [*workspace.leaks(), *(workspace.added(*one) for one in wanted)]
    print("| gain in nDCG@5 | validation | test | gap | chance | gap if it had seen them |")
    print("| --- " * 6 + "|")
    for row in rows:
        gap = f"{row.gap:+.2f}" + (" (beyond chance)" if row.beyond_chance else "")
        gains = f"{row.valid:+.2f} | {row.test:+.2f}"
        print(f"| {row.name} | {gains} | {gap} | ±{row.chance:.2f} | {row.seen - row.test:+.2f} |")

    if wanted:
        print(f"\n| mean gap of {DIVISIONS} random divisions | out of fold | had it seen them |")
        print("| --- " * 3 + "|")
    for base, calibration in wanted:
        honest, seen = workspace.divided(base, calibration)
        print(f"| {base}/{calibration} | {honest:+.2f} | {seen:+.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workspace", type=Path, default=Path("."))
    parser.add_argument("--add", nargs="*", default=[], help="base/calibration")
    arguments = parser.parse_args()
    show(arguments.workspace, arguments.add)


if __name__ == "__main__":
    main()
