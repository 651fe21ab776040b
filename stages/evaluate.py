"""Score every candidate on test.  data/ranked, data/features -> data/evaluation, metrics, plots"""

from pathlib import Path

from coattail import tracking
from coattail.data.features import Features
from coattail.evaluation import scoring
from coattail.evaluation.scoring import EvaluateParams, Stored
from coattail.pipeline import candidates, runner


def main() -> None:
    params = runner.section("evaluate", None, EvaluateParams)
    with tracking.stage("evaluate", None, params) as run:
        known = candidates.names(Path("data/candidates.json"))
        result = scoring.evaluate(
            {name: Stored(Path("data/ranked") / name) for name in known},
            Features("data/features"),
            params,
        )
        result.write(Path("data/evaluation"), Path("metrics"), Path("plots/candidates"))
        run.metrics({"candidates": len(known)})


if __name__ == "__main__":
    runner.run(main)
