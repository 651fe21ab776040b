"""Fit a network and rank.  data/features, data/plt -> data/models/<v>, data/ranked/<v>"""

from typing import Any

from coattail import runner, tracking, tree
from coattail.deep import build, processes
from coattail.deep.device import resolve
from coattail.deep.params import DeepParams
from coattail.features import Features


def main(variant: str) -> None:
    params = runner.section("train_deep", variant, DeepParams)
    if processes.launch("stages.train_deep", variant):
        return
    settings = runner.settings()
    with processes.together(resolve(settings.device)) as device:
        features = Features("data/features")
        threads = runner.limit_threads(settings.threads)
        if not processes.leads():
            train(params, variant, features, device, threads, None)
            return
        with tracking.stage("train_deep", variant, params) as run:
            run.note(device=device, device_wanted=settings.device, processes=processes.size())
            model = train(params, variant, features, device, threads, run.log)
            model.save(f"data/models/{variant}")
            for split in ("valid", "test"):
                top = model.predict(features.inputs(model.reads, split), 100)
                top.save(f"data/ranked/{variant}/{split}.npz")
            run.curve(f"plots/training/{variant}.csv")
            build.forget(partial(variant))


def train(
    params: Any, variant: str, features: Features, device: str, threads: int, log: Any
) -> Any:
    model = build.build(params)
    return model.fit(
        features.inputs(model.reads, "train"),
        features.Y("train"),
        valid=(features.inputs(model.reads, "valid"), features.Y("valid")),
        vectors=features.vectors,
        vocabulary_size=len(features.vocabulary),
        trees=tree.load(f"data/plt/{params.tree}"),
        propensity=features.propensity,
        device=device,
        threads=threads,
        log=log,
        checkpoint=partial(variant),
    )


def partial(variant: str) -> Any:
    return runner.partial(f"train_deep@{variant}.ckpt")


if __name__ == "__main__":
    runner.run(main)
