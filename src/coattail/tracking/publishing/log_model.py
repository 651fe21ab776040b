"""Log a bundle as an MLflow model with signature, input example and the code that reads it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from coattail.models.kinds import ModelKind
from coattail.pipeline import model_digest

REQUIRED = ("numba", "numpy", "pydantic", "psutil", "pyyaml", "safetensors", "scipy", "torch")


def log_bundle(bundle: Path, example: str, kinds: Sequence[ModelKind] = ()) -> str:
    """Log into the active run; return the model's address.

    ``kinds`` are those of plugins in the bundle: their code goes along.
    """
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow
    import pandas  # type: ignore[import-untyped]
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
    from mlflow.types.schema import Array, Object, Property

    brought = [path for kind in kinds for path in model_digest.places(kind)]
    needed = {name for kind in kinds for name in model_digest.needed(kind.package)}
    needed -= {"mlflow", *REQUIRED, *(model_digest.normal(kind.package) for kind in kinds)}
    required = ["mlflow", *REQUIRED, *sorted(needed)]
    row = Object(
        [
            Property("label", DataType.string),
            Property("score", DataType.double),
            Property("probability", DataType.double, required=False),
        ]
    )
    signature = ModelSignature(
        inputs=Schema([ColSpec(DataType.string, "text")]),
        outputs=Schema([ColSpec(Array(row))]),
        params=ParamSchema([ParamSpec("k", DataType.long, 5)]),
    )
    info = mlflow.pyfunc.log_model(
        name="model",
        python_model=str(Path(__file__).with_name("model_code.py")),
        artifacts={"bundle": str(bundle)},
        code_paths=[str(Path(__file__).parents[2]), *(str(path) for path in brought)],
        pip_requirements=[f"{name}=={version(name).split('+')[0]}" for name in required],
        signature=signature,
        input_example=(pandas.DataFrame({"text": [example]}), {"k": 5}),
    )
    return str(info.model_uri)
