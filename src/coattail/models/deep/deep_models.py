"""From settings to an untrained model, and from a folder to a trained one."""

from __future__ import annotations

from pathlib import Path

from coattail.models.deep.deep_params import AplcParams, AttentionXmlParams, LarobertaParams
from coattail.models.deep.estimators.level_model import LevelModel
from coattail.models.deep.estimators.network_model import params_of, read_facts
from coattail.models.deep.estimators.text_model import TextModel
from coattail.models.deep.estimators.word_model import WordModel
from coattail.models.deep.training.fitting import AnyParams

AnyModel = WordModel | LevelModel | TextModel


def build(params: AnyParams) -> AnyModel:
    """The untrained model of ``params``: over a pre-trained encoder, a tree, or all labels."""
    if isinstance(params, LarobertaParams | AplcParams):
        return TextModel(params)
    if isinstance(params, AttentionXmlParams) and params.tree != "flat":
        return LevelModel(params)
    return WordModel(params)


def load(folder: str | Path, device: str = "cpu") -> AnyModel:
    """A saved model, on ``device`` (whatever it was trained on)."""
    return type(build(params_of(read_facts(folder)["params"], folder))).load(folder, device)
