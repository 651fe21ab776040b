"""Fit a linear model and rank.  data/features, data/plt -> data/models/<v>, data/ranked/<v>"""

import shutil
from functools import partial
from typing import Any

import scipy.sparse as sp

from coattail import tracking
from coattail.arrays import DEPTH, TopK
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
            recipe=tree.recipe_of(f"data/plt/{params.tree}"),
        )
        unfinished = runner.partial(f"train_linear@{variant}")
        Y = features.Y("train")
        model = fit(blocks, counted=Y, partial=unfinished / "fit")
        ranked, maps = _ranked_validation(model, params, features)
        ranked.save(f"data/ranked/{variant}/valid.npz")
        if params.refit:
            blocks = with_validation(f"data/{params.train}", blocks, features)
            Y = sp.csr_matrix(sp.vstack([Y, features.Y("valid")], format="csr"))
            model = fit(blocks, counted=Y, partial=unfinished / "refit")
            if isinstance(model, linear_models.Blocks):
                model.maps_ = maps
        model.predict(features.X("test"), DEPTH).save(f"data/ranked/{variant}/test.npz")
        model.save(f"data/models/{variant}")
        shutil.rmtree(unfinished, ignore_errors=True)
        run.metrics({"training_texts": sum(block.X.shape[0] for block in blocks)})
        run.metrics(linear_models.solver_figures(model))


def _ranked_validation(model: Any, params: Any, features: Features) -> tuple[TopK, Any]:
    """The ranking of the validation texts, and maps of blocks that were fitted on them."""
    X = features.X("valid")
    if params.merge == "scores" or not isinstance(model, linear_models.Blocks):
        return model.predict(X, DEPTH), None
    return model.calibrate(X, features.Y("valid"), DEPTH), model.maps_


if __name__ == "__main__":
    runner.run(main)
