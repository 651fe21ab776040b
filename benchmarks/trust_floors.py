"""Do a learned reranking's floors hold on texts that it has not seen, and what PSP is left?

    python benchmarks/trust_floors.py --data data OTHER/data --confidence 0.5 0.95 0.99

For every data folder the validation and test rankings of every base are pooled and divided at
random again, `--divisions` times, into as many validation texts as before and the rest. The
reranker learns on the first part and is judged on the second: points lost of P@1, P@3, P@5 and
nDCG@5, how often more than is allowed, and the PSP gained, on validation and on the rest.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.evaluation.metrics import judge
from coattail.labels import frequency
from coattail.models.ranking.cross_fit import together
from coattail.models.ranking.floors import GUARDED
from coattail.models.ranking.rerank import Reranker
from coattail.models.ranking.trade_off import RerankParams

METRICS = (("p", 1), ("p", 3), ("p", 5), ("ndcg", 5))  # as GUARDED
BASES = "dismec", "bonsai", "attentionxml", "dismec-attentionxml"


class Pool:
    """Validation and test texts of a data folder, to be divided again."""

    def __init__(self, data: Path) -> None:
        self.data, features = data, Features(data / "features")
        self.Y = sp.vstack([features.Y("valid"), features.Y("test")]).tocsr()
        self.n_valid, self.constants = features.Y("valid").shape[0], features.propensity
        train = features.Y("train")
        self.counts, self.n_train = frequency.counts(train), int(train.shape[0])

    def ranking(self, base: str) -> TopK:
        valid, test = (
            TopK.load(self.data / "ranked" / base / f"{split}.npz") for split in ("valid", "test")
        )
        first = np.arange(valid.n + test.n) < valid.n
        return together([(first, valid), (~first, test)])

    def divisions(self, times: int) -> Iterator[tuple[NDArray, NDArray]]:
        for seed in range(times):
            order = np.random.default_rng(seed).permutation(self.Y.shape[0])
            yield np.sort(order[: self.n_valid]), np.sort(order[self.n_valid :])

    def q(self, counts: NDArray, n: int) -> NDArray[np.float64]:
        return frequency.inverse_propensity(counts, n, *self.constants)


def divided(pool: Pool, top: TopK, params: RerankParams, times: int) -> tuple[NDArray, NDArray]:
    """Points lost, (times, 4), and PSP@5 gained on validation and on the rest, (times, 2)."""
    lost, gained = [], []
    for a, b in pool.divisions(times):
        counts = pool.counts + frequency.counts(pool.Y[a])
        q = pool.q(counts, pool.n_train + len(a))
        model = Reranker(params).fit(
            *(top.rows(a), pool.Y[a], counts, q), None, pool.q(pool.counts, pool.n_train)
        )
        old = judge(top.rows(b), pool.Y[b], q)
        new = judge(model.predict(top.rows(b), 5), pool.Y[b], q)
        lost.append([old.ratio(*m).percent - new.ratio(*m).percent for m in METRICS])
        psp = new.ratio("psp", 5).percent - old.ratio("psp", 5).percent
        assert model.learned_ is not None
        chosen, base = model.learned_.chosen, model.learned_.base
        gained.append([chosen.psp_at_k - base.psp_at_k, psp])
    return np.array(lost), np.array(gained)


def line(name: str, params: RerankParams, lost: NDArray, gained: NDArray) -> str:
    allowed = np.array([params.losses.get(metric, np.inf) for metric in GUARDED])
    broken = "/".join(str(count) for count in (lost > allowed).sum(axis=0))
    means, worst = ("/".join(f"{x:.2f}" for x in f(lost, axis=0)) for f in (np.mean, np.max))
    promised, got = gained.mean(axis=0)
    of = f"{broken} of {len(lost)}"
    return (
        f"| {name} | {params.confidence} | {of} | {means} | {worst} | {promised:.2f} | {got:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, nargs="+", default=[Path("data")])
    parser.add_argument("--bases", nargs="+", default=BASES, help="those that a folder has")
    parser.add_argument("--loss", type=float, default=1.0, help="points allowed of each metric")
    parser.add_argument("--confidence", type=float, nargs="+", default=[0.99])
    parser.add_argument("--divisions", type=int, default=10)
    arguments = parser.parse_args()
    print("| data, base | confidence | broken P@1/P@3/P@5/nDCG@5 | lost | most | PSP@5 | got |")
    print("| --- " * 7 + "|")
    held = dict.fromkeys(arguments.confidence, np.empty((0, len(GUARDED)), bool))
    for data in arguments.data:
        pool = Pool(data)
        for base in (b for b in arguments.bases if (data / "ranked" / b).exists()):
            top = pool.ranking(base)
            for confidence in arguments.confidence:
                params = RerankParams(
                    base=base,
                    strategy="learned",
                    allowed_loss=arguments.loss,
                    confidence=confidence,
                )
                lost, gained = divided(pool, top, params, arguments.divisions)
                name = f"{data.resolve().parent.name}, {base}"
                print(line(name, params, lost, gained), flush=True)
                held[confidence] = np.concatenate([held[confidence], lost <= arguments.loss])
    for confidence, kept in held.items():
        share = "/".join(f"{100 * x:.1f}" for x in kept.mean(axis=0))
        print(f"confidence {confidence}: floors held in {share} % of {len(kept)} divisions")


if __name__ == "__main__":
    main()
