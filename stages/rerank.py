"""Reorder a candidate's labels in favour of rare ones.  data/ranked/<base> -> data/ranked/<v>"""

from coattail import runner, tracking
from coattail.arrays import TopK
from coattail.features import Features
from coattail.rerank import Reranker, RerankParams


def main(variant: str) -> None:
    params = runner.section("rerank", variant, RerankParams)
    with tracking.stage("rerank", variant, params) as run:
        labels = Features("data/features")
        valid = TopK.load(f"data/ranked/{params.base}/valid.npz")
        test = TopK.load(f"data/ranked/{params.base}/test.npz")
        model = Reranker(params).fit(
            valid, labels.Y("valid"), labels.counts, labels.inverse_propensity
        )
        model.save(f"data/models/{variant}")
        model.predict(valid, valid.k).save(f"data/ranked/{variant}/valid.npz")
        model.predict(test, test.k).save(f"data/ranked/{variant}/test.npz")
        if model.learned_:
            chosen, base = model.learned_.chosen, model.learned_.base
            run.note(calibration=chosen.calibration)
            run.metrics({"t_first": chosen.first, "t_rest": chosen.rest, "power": chosen.power})
            run.metrics({"valid_psp_gain": chosen.psp_at_k - base.psp_at_k})


if __name__ == "__main__":
    runner.run(main)
