"""What people wait for is not spent on libraries that the work at hand does without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    *("alembic", "dask", "fastapi", "matplotlib", "mlflow", "numba", "optuna", "pandas"),
    *("pyarrow", "requests", "scipy", "sklearn", "sqlalchemy", "torch", "transformers"),
}
STAGES = {
    "code": set(),
    "plugins": set(),
    "candidates": set(),
    "take_in": {"scipy"},
    "download": {"scipy"},
    "build_plt": {"scipy"},
    "augment_tails": {"scipy"},
    "evaluate": {"scipy"},
    "report": {"scipy"},
    "publish": {"scipy"},
    "preprocess": {"scipy", "numba"},
    "train_linear": {"scipy", "numba"},
    "ensemble": {"scipy", "numba"},
    "rerank": {"scipy", "numba"},
    "train_deep": {"scipy", "numba", "torch"},
    "transfer": {"scipy", "numba", "torch"},
}
"""Heavy libraries that a stage may have loaded when its own work begins."""


def loaded_after(code: str, folder: Path = ROOT) -> set[str]:
    told = f"{code}\nimport sys; print('loaded', *{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", told], cwd=folder, capture_output=True, text=True, check=True
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("loaded ")]
    return set(line.split()) & HEAVY


def test_the_budget_names_every_stage():
    assert set(STAGES) == {path.stem for path in (ROOT / "stages").glob("[!_]*.py")}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_loads_only_what_it_works_with(stage):
    assert loaded_after(f"import stages.{stage}") <= STAGES[stage]


def test_a_stage_that_leaves_its_run_for_mlflow_does_not_load_it(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    (tmp_path / "params.yaml").write_text("dataset: {name: toy}")
    code = """
from coattail import tracking
from coattail.tracking import courier
called = []
courier.call = lambda: called.append(1)
with tracking.stage("download", None, None) as run:
    run.metrics({"files": 1})
assert called
"""
    assert loaded_after(code, tmp_path) == set()


@pytest.mark.parametrize("words", ["--help", "data list", "tag --help", "sync --help"])
def test_a_command_of_the_cli_starts_with_next_to_nothing(words):
    code = f"""
from click.testing import CliRunner
from coattail.cli.main import main
assert CliRunner().invoke(main, {words.split()!r}).exit_code == 0
"""
    assert loaded_after(code) == set()


def test_a_linear_candidate_tags_without_torch_and_mlflow():
    assert not loaded_after(
        "import coattail.serving.tagger, coattail.models.linear.linear_models"
    ) & {
        "torch",
        "mlflow",
    }
