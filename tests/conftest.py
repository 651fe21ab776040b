"""For all tests: a small project that has run once, and who runs what when workers share the tests.

Building a project costs more than most tests that look at it. So there are two, each built once:
``tiny`` (two linear candidates) for everything about DVC, MLflow and commands, and the whole
pipeline of repository/test_pipeline.py. Tests that share something expensive run in one worker.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.project import Clone, copy_of, tiny_project

settings.register_profile("coattail", deadline=None)  # machines that run tests are often busy
settings.load_profile("coattail")

FIRST = ("pipeline", "services")
"""Marks of the tests to begin with: what takes longest must not be left for the end."""

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the processors; threads of theirs that wait for each other only cost time.
    # Tests about threads ask for their own number.
    os.environ.setdefault("COATTAIL_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest first; one group, so one worker, per shared project, class or file."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    items.sort(key=lambda item: not any(item.get_closest_marker(name) for name in FIRST))
    items.sort(key=lambda item: "tiny" not in item.fixturenames)


def group(item: pytest.Item) -> str:
    if "tiny" in item.fixturenames:
        return "tiny"
    path, _, rest = item.nodeid.partition("::")
    name, inside, _ = rest.partition("::")
    return f"{path}::{name}" if inside else path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Two linear candidates, run once and committed; who changes files takes ``tiny_copy``."""
    clone = tiny_project(tmp_path_factory.mktemp("tiny") / "project")
    clone.dvc("repro")
    clone.commit("results")
    return clone


@pytest.fixture
def tiny_copy(tiny: Clone, tmp_path: Path) -> Clone:
    """That project to spoil, with an MLflow store that starts empty."""
    return copy_of(tiny, tmp_path / "project")


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's SQLite file with its tables: a copy takes no time, making them half a second."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path
