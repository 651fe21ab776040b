"""What tests of several modules share, and which worker runs what.

Building a project costs more than most tests that look at it. So there are two, each built once:
``tiny`` (two linear candidates) for what is about DVC, MLflow and commands, and the whole
pipeline of repository/test_pipeline.py. Tests that share something expensive run in one worker.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

from tests.project import Clone, copy_of, tiny_project

settings.register_profile("coattail", deadline=None)  # machines that run tests are often busy
settings.load_profile("coattail")

AROUND_TINY = ("tests/experiments/test_exchange.py", "tests/repository/test_reruns.py")
"""Modules around ``tiny``: one worker gets them all, so that it is built once."""
FIRST = ("pipeline", "services")
"""Marks of the tests to begin with: what takes longest must not be left for the end."""

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the processors; threads of theirs that wait for each other only cost time.
    # Tests about threads ask for their own number.
    os.environ.setdefault("COATTAIL_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, the modules around ``tiny`` before all others."""
    for item in items:
        around = item.nodeid.startswith(AROUND_TINY)
        assert around or "tiny" not in item.fixturenames, f"add to AROUND_TINY: {item.nodeid}"
    items.sort(key=lambda item: not any(item.get_closest_marker(name) for name in FIRST))
    items.sort(key=lambda item: not item.nodeid.startswith(AROUND_TINY))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A worker gets a class or a module as a whole, and one of them all modules around ``tiny``.

    Groups (``--dist loadgroup``) would say the same, but xdist 3.8 marks them in a way that
    pytest 9 does not read.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            around = nodeid.startswith(AROUND_TINY)
            return "tiny" if around else str(super()._split_scope(nodeid))

    return Scheduling(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Two linear candidates, run once and committed; who changes files takes ``tiny_copy``."""
    clone = tiny_project(tmp_path_factory.mktemp("tiny") / "project")
    clone.dvc("repro")
    clone.commit("results")
    return clone


@pytest.fixture
def tiny_copy(tiny: Clone, tmp_path: Path, empty_store: Path) -> Clone:
    """That project to spoil, with an MLflow store that starts empty."""
    clone = copy_of(tiny, tmp_path / "project")
    shutil.copy(empty_store, clone.folder / "mlflow.db")
    return clone


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's SQLite file with its tables: a copy takes no time, making them half a second."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path
