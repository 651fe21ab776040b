"""Show the run in MLflow.  data/evaluation, data/models, data/runs ... -> data/published.json"""

from pathlib import Path

from coattail.files import atomic_file
from coattail.pipeline import runner
from coattail.pipeline.result_params import PublishParams
from coattail.tracking.publishing.gather import show


def main() -> None:
    params = runner.section("publish", None, PublishParams)
    text = show(params, Path("data"), Path("plots"))
    with atomic_file("data/published.json") as path:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    runner.run(main)
