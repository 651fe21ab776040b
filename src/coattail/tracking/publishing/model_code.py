"""A candidate as an MLflow model: texts in, labels out (loaded by MLflow as code)."""

from __future__ import annotations

import logging
from typing import Any

import mlflow
from mlflow.pyfunc import PythonModel

log = logging.getLogger("coattail")


class TextTagger(PythonModel):
    """Input: a column ``text``. Params: ``k``. Output: per text a list of labels, best first.

    A label is {label, score, probability}: the score orders, the probability is the confidence to
    read (None where the candidate has margins). A text of which the candidate knows no word has no
    labels, and a warning in the log.
    """

    def load_context(self, context: Any) -> None:
        from coattail.serving.tagger import Tagger

        self.tagger = Tagger.of_bundle(context.artifacts["bundle"], with_code=True)

    # MLflow takes annotations for a schema and warns about those it cannot use.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        k = int((params or {}).get("k", 5))
        tagged = self.tagger.tag([str(text) for text in model_input["text"]], k)
        for row, found in enumerate(tagged):
            if not found.known:
                log.warning("row %d: %s", row, self.tagger.unknown_words)
        return [[tag._asdict() for tag in found.tags] for found in tagged]


mlflow.models.set_model(TextTagger())
