"""A candidate as an MLflow model: texts in, labels and scores out (loaded by MLflow as code)."""

from __future__ import annotations

from typing import Any

import mlflow
from mlflow.pyfunc import PythonModel


class TextTagger(PythonModel):
    """Input: a column ``text``. Params: ``k``. Output: a list of {label, score} per text."""

    def load_context(self, context: Any) -> None:
        from coattail.serve import Tagger

        self.tagger = Tagger.of_bundle(context.artifacts["bundle"])

    def predict(self, context: Any, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        k = int((params or {}).get("k", 5))
        tagged = self.tagger.tag([str(text) for text in model_input["text"]], k)
        return [[{"label": label, "score": score} for label, score in row] for row in tagged]


mlflow.models.set_model(TextTagger())
