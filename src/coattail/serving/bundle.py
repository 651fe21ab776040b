"""A bundle: one folder with everything that a candidate needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from coattail.files import atomic_folder
from coattail.pipeline.candidates import Candidate, chain_of


def bundle(folder: str | Path, name: str, known: dict[str, Candidate], data: Path) -> Path:
    """Write the bundle of a candidate of ``data`` to ``folder``."""
    chain = chain_of(name, known)
    with atomic_folder(folder) as out:
        for part in chain:
            shutil.copytree(data / "models" / part, out / "models" / part)
        for path in (
            "tfidf/words.txt",
            "tfidf/idf.npy",
            "tokens/vocabulary.txt",
            "labels/names.txt",
        ):
            (out / "features" / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(data / "features" / path, out / "features" / path)
        if (note := data / "features" / "tokenizer.json").exists():  # else by the first rule
            shutil.copy(note, out / "features")
        content = {
            "candidate": name,
            "chain": {
                part: {"stage": one.stage, "sources": list(one.sources)}
                for part, one in chain.items()
            },
        }
        (out / "bundle.json").write_text(json.dumps(content, indent=1) + "\n")
    return Path(folder)
