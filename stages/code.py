"""Digest the code of every stage and model; refuse unknown ones.  src, stages -> data/code"""

from coattail.config import read_yaml
from coattail.files import atomic_file
from coattail.pipeline import code_digest, model_digest, registry, runner


def main() -> None:
    registry.check_models(read_yaml("params.yaml"))
    for stage in code_digest.stages():
        with atomic_file(f"data/code/{stage}.txt") as path:
            path.write_text(code_digest.text(stage), encoding="utf-8")
    for kind in registry.built_in():
        with atomic_file(f"data/code/models/{kind.name}.txt") as path:
            path.write_text(model_digest.text(kind), encoding="utf-8")
    code_digest.remember()


if __name__ == "__main__":
    runner.run(main)
