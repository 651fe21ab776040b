"""Settings of the last stages, `report` and `publish`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from coattail.config import Params


class PublishParams(Params):
    """Section `publish` of params.yaml."""

    best_by: str = Field("psp_at_5", description="test metric that names the best candidate")
    models: Literal["all", "best", "none"] = Field(
        "best", description="whose models are logged to MLflow; the best one is registered"
    )


class ReportParams(Params):
    """Section `report` of params.yaml."""

    examples: int = Field(12, ge=0, le=100)
    """Test texts shown with what every candidate said."""
    words: int = Field(4, ge=0, le=20)
    """Words that explain a predicted label; 0 explains nothing and loads no model for it."""
    text: int = Field(1200, ge=100, le=20_000)
    """Characters shown of a text."""
    labels: int = Field(20_000, ge=100, le=200_000)
    """Rows of the table of labels at most; of more labels it holds an even sample by frequency."""
