"""Fetch, copy or generate the dataset's files and verify them.  conf -> data/raw"""

from pathlib import Path

from coattail import tracking
from coattail.data import download
from coattail.data.dataset_params import DatasetParams, VectorsParams
from coattail.pipeline import runner


def main() -> None:
    params = runner.section("dataset", None, DatasetParams)
    vectors = runner.section("vectors", None, VectorsParams)
    download.check_source(params)
    with tracking.stage("download", None, params) as run:
        raw = Path("data/raw")
        manifest = download.acquire(params, raw, vectors)
        size = sum(path.stat().st_size for path in raw.iterdir())
        run.metrics({"files": len(manifest["files"]), "megabytes": size / 1e6})


if __name__ == "__main__":
    runner.run(main)
