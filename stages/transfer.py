"""Transfer head classifiers to the tail.  data/features -> data/models/<v>, data/ranked/<v>"""

from pathlib import Path
from typing import Any

from coattail import tracking
from coattail.arrays import DEPTH
from coattail.data.features import Features
from coattail.models.deep.device import resolve
from coattail.models.deep.fit_data import FitData, Log, RunContext
from coattail.models.deep.training import checkpoint, curve, processes
from coattail.models.deep.transfer.transfer_models import build
from coattail.pipeline import runner


def main(variant: str) -> None:
    params = runner.section("transfer", variant)
    if processes.launch("stages.transfer", variant, most=params.pieces):
        return
    wanted = runner.settings()
    if not processes.leads():
        with processes.together(resolve(wanted.device)) as device:
            train(params, variant, device, wanted.threads, None)
        return
    with (
        tracking.stage("transfer", variant, params) as run,
        processes.together(resolve(wanted.device)) as device,
    ):
        run.note(device=device, device_wanted=wanted.device, processes=processes.size())
        features = Features("data/features")
        model = train(params, variant, device, wanted.threads, run.log)
        model.save(f"data/models/{variant}")
        for split in ("valid", "test"):
            top = model.predict(features.tokens(split), DEPTH)
            top.save(f"data/ranked/{variant}/{split}.npz")
        curve.write(f"plots/training/{variant}.csv", run.computed)
        checkpoint.forget(partial(variant))


def train(params: Any, variant: str, device: str, threads: int, log: Log | None) -> Any:
    features = Features("data/features")
    data = FitData(
        features.tokens("train"),
        features.Y("train"),
        valid=(features.tokens("valid"), features.Y("valid")),
        vocabulary_size=len(features.vocabulary),
        vectors=features.vectors,
        label_names=features.label_names,
        propensity=features.propensity,
    )
    context = RunContext(device, runner.limit_threads(threads), log, partial(variant))
    return build(params).fit(data, context)


def partial(variant: str) -> Path:
    return runner.partial(f"transfer@{variant}.ckpt")


if __name__ == "__main__":
    runner.run(main)
