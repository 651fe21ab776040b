"""Digest the code, assets and libraries of every stage.  src, stages -> data/code"""

from coattail.files import atomic_file
from coattail.pipeline import code_digest, runner


def main() -> None:
    for stage in code_digest.stages():
        with atomic_file(f"data/code/{stage}.txt") as path:
            path.write_text(code_digest.text(stage), encoding="utf-8")
    code_digest.remember()


if __name__ == "__main__":
    runner.run(main)
