"""Show the run in MLflow.  data/evaluation, data/models, data/runs ... -> data/published.json"""

import json
from pathlib import Path

from coattail.arrays import atomic_file
from coattail.config import read_yaml
from coattail.pipeline import runner
from coattail.pipeline.candidates import remove_strays
from coattail.pipeline.result_params import PublishParams
from coattail.tracking.publishing.gather import show


def main() -> None:
    params = runner.section("publish", None, PublishParams)
    remove_strays(read_yaml("params.yaml"), "models", "runs")
    result = show(params, Path("data"), Path("plots"))
    with atomic_file("data/published.json") as path:
        path.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    runner.log.info("publish: best candidate by %s: %s", params.best_by, result["best"])


if __name__ == "__main__":
    runner.run(main)
