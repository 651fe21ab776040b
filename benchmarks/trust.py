"""Can the figures of a workspace be trusted? All questions, one after the other.

    python benchmarks/trust.py . OTHER --add dismec/boosted

For every workspace whose pipeline has run (folders with params.yaml and data/): the leak of what
learns on validation (`trust_leak.py`), optimism of the champion and false marks (`trust_marks.py`),
floors of learned rerankings on fresh texts (`trust_floors.py`). At the end, once: the same bytes of
all stages on several processors (`processors.py`; some minutes).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("workspaces", type=Path, nargs="*", default=[Path(".")])
    parser.add_argument("--add", nargs="*", default=[], help="base/calibration for the leak")
    parser.add_argument("--no-processors", action="store_true", help="leave the last part out")
    arguments = parser.parse_args()
    failed = 0
    for workspace in arguments.workspaces:
        data = str(workspace / "data")
        failed += ask("leak", workspace, "--workspace", str(workspace), "--add", *arguments.add)
        failed += ask("marks", workspace, "--data", data)
        failed += ask("floors", workspace, "--data", data)
    if not arguments.no_processors:
        failed += run("same bytes on other processors", "processors.py")
    return int(failed > 0)


def ask(part: str, workspace: Path, *words: str) -> int:
    return run(f"{part}, {workspace.resolve().name}", f"trust_{part}.py", *words)


def run(title: str, script: str, *words: str) -> int:
    print(f"\n== {title}: benchmarks/{script}", flush=True)
    return subprocess.run([sys.executable, str(HERE / script), *words]).returncode


if __name__ == "__main__":
    sys.exit(main())
