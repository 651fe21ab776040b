"""Take in a folder of yours again if it has changed.  take_in -> data/own"""

from pathlib import Path

from coattail.data import taking_in
from coattail.data.dataset_params import DatasetParams, TakeInParams
from coattail.pipeline import runner


def main(variant: str) -> None:
    dataset = runner.section("dataset", None, DatasetParams)
    own = runner.section("take_in", variant, TakeInParams)
    taking_in.take_in(dataset, own, Path(f"data/own/{variant}"))


if __name__ == "__main__":
    runner.run(main)
