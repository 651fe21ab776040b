"""AttentionXML: one network over all labels, or one per level of a label tree."""

from __future__ import annotations

from coattail.models.deep.deep_params import AttentionXmlParams
from coattail.models.deep.estimators.level_model import LevelModel
from coattail.models.deep.estimators.word_model import WordModel


def build(params: AttentionXmlParams) -> WordModel | LevelModel:
    """The untrained model; ``tree: flat`` is no tree."""
    return WordModel(params) if params.tree == "flat" else LevelModel(params)
