"""Fit a linear model and rank.  data/features, data/plt -> data/models/<v>, data/ranked/<v>"""

import shutil
from functools import partial

from coattail import tracking
from coattail.arrays import DEPTH
from coattail.data.augment import with_validation
from coattail.data.features import Features, load_training
from coattail.labels import tree
from coattail.models.linear import linear_models
from coattail.pipeline import runner


def main(variant: str) -> None:
    params = runner.section("train_linear", variant)
    with tracking.stage("train_linear", variant, params) as run:
        features = Features("data/features")
        blocks = load_training(f"data/{params.train}", features)
        fit = partial(
            linear_models.fit_blocks,
            params.of_dataset(features.propensity),
            tree.load(f"data/plt/{params.tree}"),
            n_labels=features.n_labels,
        )
        unfinished = runner.partial(f"train_linear@{variant}")
        model = fit(blocks, partial=unfinished / "fit")
        model.predict(features.X("valid"), DEPTH).save(f"data/ranked/{variant}/valid.npz")
        if params.refit:
            blocks = with_validation(f"data/{params.train}", blocks, features)
            model = fit(blocks, partial=unfinished / "refit")
        model.predict(features.X("test"), DEPTH).save(f"data/ranked/{variant}/test.npz")
        model.save(f"data/models/{variant}")
        shutil.rmtree(unfinished, ignore_errors=True)
        run.metrics({"training_texts": sum(block.X.shape[0] for block in blocks)})
        run.metrics(linear_models.solver_figures(model))


if __name__ == "__main__":
    runner.run(main)
