"""Reorder a candidate's labels in favour of rare ones.  data/ranked/<base> -> data/ranked/<v>"""

import logging

from coattail import tracking
from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.data.stored import Split
from coattail.models.ranking.rerank import Reranker
from coattail.models.ranking.trade_off import RerankParams
from coattail.pipeline import runner

log = logging.getLogger("coattail")


def main(variant: str) -> None:
    params = runner.section("rerank", variant, RerankParams)
    with tracking.stage("rerank", variant, params) as run:
        features = Features("data/features")
        model = Reranker(params, features.label_names)
        valid, valid_texts = _ranked("valid", params, features, model)
        test, test_texts = _ranked("test", params, features, model)
        known = features.Y("valid"), features.counts, features.inverse_propensity
        model.fit(valid, *known, valid_texts, features.train_inverse_propensity)
        model.out_of_fold(valid.k).save(f"data/ranked/{variant}/valid.npz")
        if params.refit:
            model.refit(features.counts)
        model.save(f"data/models/{variant}")
        model.predict(test, test.k, test_texts).save(f"data/ranked/{variant}/test.npz")
        if model.learned_:
            chosen, base = model.learned_.chosen, model.learned_.base
            run.found(calibration=chosen.calibration, keeps_base=model.learned_.keeps_base)
            run.metrics({"t_first": chosen.first, "t_rest": chosen.rest, "power": chosen.power})
            run.metrics({"valid_psp_gain": chosen.psp_at_k - base.psp_at_k})
            run.metrics({"floors_held": model.learned_.held})
            if model.learned_.keeps_base:
                log.info("%s: nothing else clears the floors; the base stays as it came", variant)


def _ranked(
    split: Split, params: RerankParams, features: Features, model: Reranker
) -> tuple[TopK, list[str] | None]:
    texts = features.texts(split) if model.reads_texts else None
    return TopK.load(f"data/ranked/{params.base}/{split}.npz"), texts


if __name__ == "__main__":
    runner.run(main)
