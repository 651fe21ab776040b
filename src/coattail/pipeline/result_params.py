"""Settings of the last stages, `report` and `publish`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from coattail.config import Params


class PublishParams(Params):
    """Section `publish` of params.yaml."""

    models: Literal["all", "best", "none"] = Field(
        "best", description="whose models are logged to MLflow; the champion's is registered"
    )

    @model_validator(mode="before")
    @classmethod
    def _no_choice_on_test(cls, given: Any) -> Any:
        if isinstance(given, dict) and "best_by" in given:
            raise ValueError(
                "best_by is gone: the champion is chosen on validation. Remove it and write, under "
                f"evaluate, best: {{by: {given['best_by']}, at_least: {{p_at_1: base - 1.0}}}}"
            )
        return given


class ReportParams(Params):
    """Section `report` of params.yaml."""

    examples: int = Field(
        12, ge=0, le=100, description="test texts shown with what every candidate said"
    )
    words: int = Field(
        4,
        ge=0,
        le=20,
        description="words that explain a predicted label; 0 explains nothing and loads no model",
    )
    text: int = Field(1200, ge=100, le=20_000, description="characters shown of a text")
    labels: int = Field(
        20_000,
        ge=100,
        le=200_000,
        description="rows of the table of labels at most; of more labels it holds an even sample "
        "by frequency",
    )
