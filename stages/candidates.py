"""List the candidates of params.yaml, remove leftovers of former ones.  data/runs -> a list"""

from pathlib import Path

from coattail.config import read_yaml
from coattail.pipeline import candidates, runner, stage_result
from coattail.pipeline.leftovers import remove_leftovers


def main() -> None:
    params = read_yaml("params.yaml")
    remove_leftovers(params)
    made = stage_result.results(candidates.stages_before_evaluation(params))
    candidates.write(Path("data/candidates.json"), params, made)


if __name__ == "__main__":
    runner.run(main)
