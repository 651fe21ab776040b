"""Fit a network and rank.  data/features, data/plt -> data/models/<v>, data/ranked/<v>"""

from pathlib import Path
from typing import Any

from coattail import tracking
from coattail.arrays import DEPTH
from coattail.data.features import Features
from coattail.labels import tree
from coattail.models.deep import deep_models
from coattail.models.deep.device import resolve
from coattail.models.deep.fit_data import FitData, Log, RunContext
from coattail.models.deep.training import checkpoint, curve, processes
from coattail.pipeline import runner


def main(variant: str) -> None:
    params = runner.section("train_deep", variant)
    if processes.launch("stages.train_deep", variant):
        return
    wanted = runner.settings()
    if not processes.leads():
        with processes.together(resolve(wanted.device)) as device:
            train(params, variant, device, wanted.threads, None)
        return
    # The device is looked for inside the run, so that MLflow shows what was wrong with it.
    with (
        tracking.stage("train_deep", variant, params) as run,
        processes.together(resolve(wanted.device)) as device,
    ):
        run.note(device=device, device_wanted=wanted.device, processes=processes.size())
        features, reads = Features("data/features"), deep_models.kind_of(params).reads
        model = train(params, variant, device, wanted.threads, run.log)
        model.save(f"data/models/{variant}")
        for split in ("valid", "test"):
            top = model.predict(features.inputs(reads, split), DEPTH)
            top.save(f"data/ranked/{variant}/{split}.npz")
        curve.write(f"plots/training/{variant}.csv", run.computed)
        checkpoint.forget(partial(variant))


def train(params: Any, variant: str, device: str, threads: int, log: Log | None) -> Any:
    features, kind = Features("data/features"), deep_models.kind_of(params)
    data: FitData[Any] = FitData(
        features.inputs(kind.reads, "train"),
        features.Y("train"),
        valid=(features.inputs(kind.reads, "valid"), features.Y("valid")),
        vocabulary_size=len(features.vocabulary),
        vectors=features.vectors,
        trees=tree.load(f"data/plt/{params.tree}"),
        propensity=features.propensity,
    )
    context = RunContext(device, runner.limit_threads(threads), log, partial(variant))
    return kind.build(params).fit(data, context)


def partial(variant: str) -> Path:
    return runner.partial(f"train_deep@{variant}.ckpt")


if __name__ == "__main__":
    runner.run(main)
