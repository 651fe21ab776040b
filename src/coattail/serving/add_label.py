"""Give a trained candidate one more label from a few texts, without training it again.

The grown candidate is a bundle of its own (coattail.serving.tagger): what DVC made stays as it is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from coattail.data.features import Features
from coattail.data.text import UNK, is_mark, spelling
from coattail.errors import DataError, ModelError
from coattail.files import atomic_folder
from coattail.models.linear.ovr import Ovr
from coattail.serving.bundle import bundle
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
    stage = tagger.chain[tagger.name].stage
    if stage not in ("transfer", "train_linear"):
        raise ModelError(
            f"{tagger.name} is made by {stage}, which cannot take a label without training; "
            "choose a candidate of transfer (model: httn or imprinting) or a one-vs-rest model"
        )
    model = tagger.model(tagger.name)
    vectorizer = Features(tagger.folder / "features").vectorizer
    if stage == "train_linear":
        _grow_linear(model, tagger, vectorizer.transform(texts))
        return model
    if not hasattr(model, "add_label"):
        kind = model.params.model
        raise ModelError(
            f"{tagger.name} is a {kind} model, which has no transfer to add labels with; "
            "use model: httn or imprinting"
        )
    tokens = vectorizer.token_ids(texts)
    if not np.any(tokens.values != UNK):
        raise DataError(f"the model knows no word of the texts for {name!r}; wanted other texts")
    model.add_label(name, tokens)
    return model


def _grow_linear(model: Any, tagger: Tagger, new: sp.csr_matrix) -> None:
    """One more classifier: the new texts against all training texts."""
    if not isinstance(model, Ovr):
        raise ModelError(
            f"{tagger.name} is not a plain one-vs-rest model; only that, or a candidate of "
            "transfer, takes a label without training everything again"
        )
    features = Features(tagger.folder / "features")
    if not features.has_rows("train"):
        raise ModelError(
            f"{features.folder} holds no rows of train: a one-vs-rest model learns a label against "
            "its training texts; name the candidate in its project instead of a bundle"
        )
    if not new.nnz:
        raise DataError("the model knows no word of the texts; wanted other texts")
    X = sp.vstack([features.X("train"), new], format="csr")
    truth = np.zeros((X.shape[0], 1), np.float32)
    truth[-new.shape[0] :] = 1
    one = Ovr(model.params).fit(X, sp.csr_matrix(truth))
    model.W_ = sp.csr_matrix(sp.hstack([model.W_, one.W_], format="csr"))
    model.bias_ = np.concatenate([model.bias_, one.bias_])


def _slug(name: str) -> str:
    plain = "".join(c if is_mark(c) else re.sub(r"[^\w.-]", " ", c) for c in spelling(name))
    return "-".join(plain.split()).strip("-") or "label"
