"""From settings to an untrained model, and from a folder to a trained one."""

from __future__ import annotations

import glob
from pathlib import Path

from coattail.models.deep.deep_params import AplcParams, AttentionXmlParams, LarobertaParams
from coattail.models.deep.estimators.level_model import LevelModel
from coattail.models.deep.estimators.text_model import TextModel
from coattail.models.deep.estimators.word_model import DeepModel, params_of, read_facts
from coattail.models.deep.training.loop import AnyParams


def build(params: AnyParams) -> DeepModel | LevelModel | TextModel:
    """The untrained model of ``params``: over a pre-trained encoder, a tree, or all labels."""
    if isinstance(params, LarobertaParams | AplcParams):
        return TextModel(params)
    if isinstance(params, AttentionXmlParams) and params.tree != "flat":
        return LevelModel(params)
    return DeepModel(params)


def forget(checkpoint: Path) -> None:
    """Remove a checkpoint, and those of the levels of a tree beside it."""
    checkpoint.unlink(missing_ok=True)
    for file in checkpoint.parent.glob(f"{glob.escape(checkpoint.stem)}-tree*-level*"):
        file.unlink(missing_ok=True)


def load(folder: str | Path, device: str = "cpu") -> DeepModel | LevelModel | TextModel:
    """A saved model, on ``device`` (whatever it was trained on)."""
    return type(build(params_of(read_facts(folder)))).load(folder, device)
