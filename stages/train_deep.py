"""Fit a network and rank.  data/features, data/plt -> data/models/<v>, data/ranked/<v>"""

from coattail import runner, tracking, tree
from coattail.deep import build
from coattail.deep.device import resolve
from coattail.deep.params import DeepParams
from coattail.features import Features


def main(variant: str) -> None:
    params = runner.section("train_deep", variant, DeepParams)
    settings = runner.settings()
    with tracking.stage("train_deep", variant, params) as run:
        device = resolve(settings.device)
        run.note(device=device, device_wanted=settings.device)
        features = Features("data/features")
        checkpoint = runner.partial(f"train_deep@{variant}.ckpt")
        model = build.build(params).fit(
            features.tokens("train"),
            features.Y("train"),
            valid=(features.tokens("valid"), features.Y("valid")),
            vectors=features.vectors,
            vocabulary_size=len(features.vocabulary),
            trees=tree.load(f"data/plt/{params.tree}"),
            propensity=features.propensity,
            device=device,
            threads=settings.threads,
            log=run.log,
            checkpoint=checkpoint,
        )
        model.save(f"data/models/{variant}")
        for split in ("valid", "test"):
            top = model.predict(features.tokens(split), 100)
            top.save(f"data/ranked/{variant}/{split}.npz")
        run.curve(f"plots/training/{variant}.csv")
        build.forget(checkpoint)


if __name__ == "__main__":
    runner.run(main)
