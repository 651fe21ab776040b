"""Transfer head classifiers to the tail.  data/features -> data/models/<v>, data/ranked/<v>"""

from coattail import tracking
from coattail.data.features import Features
from coattail.models.deep.device import resolve
from coattail.models.deep.transfer.transfer_models import build
from coattail.pipeline import runner


def main(variant: str) -> None:
    params = runner.section("transfer", variant)
    settings = runner.settings()
    with tracking.stage("transfer", variant, params) as run:
        device = resolve(settings.device)
        run.note(device=device, device_wanted=settings.device)
        features = Features("data/features")
        model = build(params).fit(
            features.tokens("train"),
            features.Y("train"),
            valid=(features.tokens("valid"), features.Y("valid")),
            vectors=features.vectors,
            vocabulary_size=len(features.vocabulary),
            label_names=features.label_names,
            propensity=features.propensity,
            device=device,
            threads=settings.threads,
            log=run.log,
        )
        model.save(f"data/models/{variant}")
        for split in ("valid", "test"):
            top = model.predict(features.tokens(split), 100)
            top.save(f"data/ranked/{variant}/{split}.npz")


if __name__ == "__main__":
    runner.run(main)
