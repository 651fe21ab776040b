"""Show the run in MLflow.  data/evaluation, data/models, data/runs ... -> data/published.json"""

from pathlib import Path

from coattail import runner, workspace
from coattail.config import read_yaml
from coattail.pipeline import remove_strays
from coattail.workspace import PublishParams


def main() -> None:
    params = runner.section("publish", None, PublishParams)
    remove_strays(read_yaml("params.yaml"), "models", "runs")
    result = workspace.publish_all(params)
    runner.log.info("publish: done, best candidate by %s: %s", params.best_by, result["best"])


if __name__ == "__main__":
    runner.run(main)
