"""Settings of the model, as they stand in params.yaml."""

from typing import Literal

from pydantic import Field

from coattail.models.linear.linear_params import WiredParams


class CentroidsParams(WiredParams):
    """The labels whose mean text is nearest (Rocchio)."""

    model: Literal["centroids"] = Field("centroids", description="nearest mean texts of labels")
    prior: float = Field(
        0.0, ge=0.0, le=1.0, description="power of a label's number of texts that its score gains"
    )
