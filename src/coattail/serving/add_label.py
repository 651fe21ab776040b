"""Give a trained candidate one more label from a few texts, without training it again.

The grown candidate is a bundle of its own (coattail.serving.tagger): what DVC made stays as it is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from coattail.data.features import Features
from coattail.data.text import is_mark, spelling
from coattail.errors import DataError, ModelError
from coattail.files import atomic_folder
from coattail.pipeline import registry
from coattail.serving.bundle import bundle
from coattail.serving.new_texts import NewTexts
from coattail.serving.tagger import Tagger

ADDED = Path("data/added")


def read_texts(path: str | Path) -> list[str]:
    """Texts of a file: one per line, or objects with a ``text`` in .jsonl; empty ones left out."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, IsADirectoryError):
        raise DataError(f"{path} is no file; wanted one text per line, or .jsonl") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}") from None
    if path.suffix == ".jsonl":
        lines = [_text(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise DataError(f"{path} holds no text; wanted at least one line")
    return found


def _text(path: Path, number: int, line: str) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError):
        text = None
    if not isinstance(text, str):
        raise DataError(f'{path}, line {number}: wanted {{"text": "..."}}, got {line[:60]}')
    return text


def add_label(
    source: str, name: str, texts: list[str], to: str | Path | None = None
) -> tuple[Path, int]:
    """Write the candidate (or bundle folder) ``source`` with the new label; its folder and id.

    ``to`` is a folder that does not exist yet; without it one under data/added.
    """
    if not name.strip() or "\n" in name:
        raise DataError(f"{name!r} is no name of a label; wanted some characters on one line")
    tagger = open_tagger(source)
    folder = Path(to) if to is not None else ADDED / f"{tagger.name}+{_slug(name)}"
    if folder.exists():
        raise ModelError(f"{folder} exists; remove it, or choose another folder with --to")
    names = Features(tagger.folder / "features").label_names
    if name in names:
        raise ModelError(
            f"{tagger.name} has a label {name!r} already (id {names.index(name)}); "
            "choose another name, or add the texts to the training set and train again"
        )
    model = _grown(tagger, name, texts)
    with atomic_folder(folder) as out:
        bundle(out, tagger.name, tagger.chain, tagger.folder, [*names, name])
        model.save(out / "models" / tagger.name)
    return folder, len(names)


def open_tagger(source: str | None) -> Tagger:
    """A candidate of the workspace by name, or a bundle by folder."""
    if source is not None and (Path(source) / "bundle.json").exists():
        return Tagger.of_bundle(source)
    return Tagger.of_workspace(source)


def _grown(tagger: Tagger, name: str, texts: list[str]) -> Any:
    """The candidate's model with one more label."""
    kind = tagger.kind(tagger.name)
    grow = kind.get("add_label")
    if grow is None:
        stage = tagger.chain[tagger.name].stage
        made = f"a {kind.name} model" if registry.stage(stage).chooses else f"made by {stage}"
        raise ModelError(
            f"{tagger.name} is {made}, which cannot take a label without being trained again; "
            f"choose a candidate with model: {', '.join(registry.growing())}"
        )
    features = Features(tagger.folder / "features")
    new = NewTexts(texts, features.vectorizer)
    if not new.known_to(kind.reads).any():
        raise DataError(f"the model knows no word of the texts for {name!r}; wanted other texts")

    def training() -> Any:
        try:
            return features.inputs(kind.reads, "train")
        except (DataError, OSError) as error:
            raise ModelError(
                f"{error}: {tagger.name} learns a label against its training texts; name the "
                "candidate in its project instead of a bundle"
            ) from None

    model = tagger.model(tagger.name)
    grow(model, name, getattr(new, kind.reads), training)
    return model


def _slug(name: str) -> str:
    plain = "".join(c if is_mark(c) else re.sub(r"[^\w.-]", " ", c) for c in spelling(name))
    return "-".join(plain.split()).strip("-") or "label"
