"""Log a bundle as an MLflow model with signature, input example and the code that reads it."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

REQUIRED = ("numba", "numpy", "pydantic", "psutil", "pyyaml", "safetensors", "scipy", "torch")


def log_bundle(bundle: Path, example: str) -> str:
    """Log into the active run; return the model's address."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow
    import pandas  # type: ignore[import-untyped]
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
    from mlflow.types.schema import Array, Object, Property

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
        code_paths=[str(Path(__file__).parents[2])],
        pip_requirements=[
            f"{name}=={version(name).split('+')[0]}" for name in ("mlflow", *REQUIRED)
        ],
        signature=signature,
        input_example=(pandas.DataFrame({"text": [example]}), {"k": 5}),
    )
    return str(info.model_uri)
