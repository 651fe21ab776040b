"""Put on PYTHONPATH by repository/test_pipeline.py: notes which files under data/ a stage opens."""

import os
import sys

folder = os.environ.get("COATTAIL_AUDIT")
stage = os.environ.get("DVC_STAGE")
if folder and stage:
    opened: set[str] = set()

    def note(event: str, arguments: tuple) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.relpath(os.fsdecode(arguments[0]))
            if path.startswith(("data/", "metrics/", "plots/")) and path not in opened:
                opened.add(path)
                with open(os.path.join(folder, f"{stage}+{os.getpid()}"), "a") as file:
                    file.write(path + "\n")

    sys.addaudithook(note)
