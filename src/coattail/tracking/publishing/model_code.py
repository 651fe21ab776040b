"""A candidate as an MLflow model: texts in, labels and scores out (loaded by MLflow as code)."""

from __future__ import annotations

from typing import Any

import mlflow
from mlflow.pyfunc import PythonModel


class TextTagger(PythonModel):
    """Input: a column ``text``. Params: ``k``. Output: a list of {label, score} per text."""

    def load_context(self, context: Any) -> None:
        from coattail.serving.tagger import Tagger

        self.tagger = Tagger.of_bundle(context.artifacts["bundle"])

    # MLflow takes annotations for a schema and warns about those it cannot use.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        k = int((params or {}).get("k", 5))
        tagged = self.tagger.tag([str(text) for text in model_input["text"]], k)
        return [[{"label": label, "score": score} for label, score in row] for row in tagged]


mlflow.models.set_model(TextTagger())
