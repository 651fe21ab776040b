"""How tests fit networks: what they learn from and how they run, in one call."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from coattail.models.deep.fit_data import FitData, RunContext

OF_CONTEXT = {field.name for field in fields(RunContext)}


def fit(model: Any, inputs: Any, Y: Any, **given: Any) -> Any:
    """``model`` fitted; ``given`` are fields of FitData and RunContext."""
    context = {name: value for name, value in given.items() if name in OF_CONTEXT}
    data = {name: value for name, value in given.items() if name not in OF_CONTEXT}
    return model.fit(FitData(inputs, Y, **data), RunContext(**context))
