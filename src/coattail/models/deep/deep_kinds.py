"""The networks of the stage `train_deep`, as the registry knows them."""

from __future__ import annotations

from coattail.models.kinds import ModelKind

MODELS = "coattail.models.deep.deep_models"


def _network(name: str, params: str, reads: str, model: str, explain: str = "") -> ModelKind:
    return ModelKind(
        name=name,
        stage="train_deep",
        reads=reads,
        params=f"coattail.models.deep.deep_params:{params}",
        model=model,
        explain=f"{MODELS}:{explain}" if explain else "",
        logs_validation=True,
    )


WORDS = "coattail.models.deep.estimators.word_model:WordModel"
TEXTS = "coattail.models.deep.estimators.text_model:TextModel"

KINDS = (
    _network(
        "attentionxml",
        "AttentionXmlParams",
        "tokens",
        "coattail.models.deep.estimators.attention_model:build",
        "explain_tokens",
    ),
    _network("xmlcnn", "XmlCnnParams", "tokens", WORDS),
    _network("bilstm", "BilstmParams", "tokens", WORDS),
    _network("laroberta", "LarobertaParams", "texts", TEXTS, "explain_text"),
    _network("aplc", "AplcParams", "texts", TEXTS),
)
