"""What each piece of evidence gives learned ReRank, judged on validation alone.

    python benchmarks/evidence.py --data data --bases dismec linear linear-nearest

Learned weights with so many points of P@1 allowed (--loss) for every base and calibration. Every
text is judged by a calibration fitted on the other folds; each row is the mean over --draws
assignments of texts to folds. No test text is read, so pieces may be compared, and chosen, here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.models.ranking.name_evidence import Names
from coattail.models.ranking.trade_off import RerankParams, learn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--bases", nargs="+", default=["dismec"])
    parser.add_argument("--calibrations", nargs="+", default=["context", "names", "boosted"])
    parser.add_argument("--loss", type=float, default=4.0, help="points of P@1 allowed")
    parser.add_argument("--draws", type=int, default=2)
    arguments = parser.parse_args()
    features = Features(arguments.data / "features")
    names, texts = Names(features.label_names), features.texts("valid")
    print("| base | calibration | P@1 | P@5 | PSP@1 | PSP@5 | PSP@5 by draw |")
    print("| --- " * 7 + "|")
    for base in arguments.bases:
        topk = TopK.load(arguments.data / "ranked" / base / "valid.npz")
        evidence = names.evidence(texts, topk.labels)
        for calibration in arguments.calibrations:
            points = []
            for seed in range(arguments.draws):
                params = RerankParams(
                    base=base, strategy="learned", calibration=calibration,
                    allowed_loss={"p_at_1": arguments.loss}, confidence=0.5, seed=seed,
                )  # fmt: skip
                known = features.counts, features.inverse_propensity
                chosen = learn(topk, features.Y("valid"), *known, params, evidence).chosen
                points.append((chosen.p_at_1, chosen.p_at_5, chosen.psp_at_1, chosen.psp_at_k))
            cells = " | ".join(f"{value:.2f}" for value in np.mean(points, axis=0))
            draws = ", ".join(f"{point[-1]:.2f}" for point in points)
            print(f"| {base} | {calibration} | {cells} | {draws} |", flush=True)


if __name__ == "__main__":
    main()
