"""Average two candidates.  data/ranked/<first>, data/ranked/<second> -> data/ranked/<v>"""

from coattail import tracking
from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.models.ranking.ensemble import Ensemble, EnsembleParams
from coattail.pipeline import runner


def main(variant: str) -> None:
    params = runner.section("ensemble", variant, EnsembleParams)
    with tracking.stage("ensemble", variant, params) as run:
        first = [TopK.load(f"data/ranked/{params.first}/{s}.npz") for s in ("valid", "test")]
        second = [TopK.load(f"data/ranked/{params.second}/{s}.npz") for s in ("valid", "test")]
        Y_valid = Features("data/features").Y("valid")
        model = Ensemble(params).fit(first[0], second[0], Y_valid)
        model.save(f"data/models/{variant}")
        k = max(first[0].k, second[0].k)
        model.out_of_fold(first[0], second[0], k).save(f"data/ranked/{variant}/valid.npz")
        model.predict(first[1], second[1], k).save(f"data/ranked/{variant}/test.npz")
        run.metrics({"weight_of_first": model.weight_})


if __name__ == "__main__":
    runner.run(main)
