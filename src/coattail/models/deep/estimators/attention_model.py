"""AttentionXML: one network over all labels, or one per level of a label tree."""

from __future__ import annotations

from coattail.models.deep.deep_params import AttentionXmlParams
from coattail.models.deep.estimators.level_model import LevelModel
from coattail.models.deep.estimators.word_model import DeepModel


def build(params: AttentionXmlParams) -> DeepModel | LevelModel:
    """The untrained model; ``tree: flat`` is no tree."""
    return DeepModel(params) if params.tree == "flat" else LevelModel(params)
