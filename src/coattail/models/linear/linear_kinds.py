"""The linear models, as the registry knows them; one line more is one model more."""

from __future__ import annotations

from coattail.models.kinds import ModelKind

PARAMS = "coattail.models.linear.linear_params"
EXPLAINED = {
    "explain": "coattail.models.linear.explain:contributions",
    "norms": "coattail.models.linear.explain:norms",
}


def _linear(name: str, params: str, model: str, *takes: str, **more: str) -> ModelKind:
    return ModelKind(
        name=name,
        stage="train_linear",
        reads="tfidf",
        params=f"{PARAMS}:{params}",
        model=f"coattail.models.linear.{model}",
        takes=takes,
        **more,  # type: ignore[arg-type]
    )


KINDS = (
    _linear(
        "ovr",
        "OvrParams",
        "ovr:Ovr",
        "partial",
        "tail",
        "counted",
        add_label="coattail.models.linear.linear_models:add_classifier",
        **EXPLAINED,
    ),
    _linear("plt", "PltParams", "plt:Plt", "trees", "partial", "tail", "counted", **EXPLAINED),
    _linear("fastxml", "FastxmlParams", "fastxml:Fastxml", "partial"),
    _linear("nearest", "NearestParams", "nearest:Nearest"),
)
