"""Turn raw files into tf-idf, token ids, labels and their statistics.  data/raw -> data/features"""

from pathlib import Path

from coattail import tracking
from coattail.data import preprocess
from coattail.data.corpus import PreprocessParams
from coattail.pipeline import runner


def main() -> None:
    params = runner.section("preprocess", None, PreprocessParams)
    with tracking.stage("preprocess", None, params) as run:
        stats = preprocess.prepare(
            Path("data/raw"), Path("data/features"), params, plots=Path("plots/dataset")
        )
        run.metrics({key: value for key, value in stats.items() if isinstance(value, int | float)})


if __name__ == "__main__":
    runner.run(main)
