"""The engine gives the same outcomes wherever the work runs; experiments are named and combined."""

from __future__ import annotations

import os

import pytest

from coattail.engine import open_engine
from coattail.errors import ConfigError
from coattail.experiments.queue import grid, name_of


def half(number: int) -> tuple[int, int]:
    """A task that refuses odd numbers."""
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2, os.getpid()


def outcomes(where: str) -> tuple[dict, set[int]]:
    with open_engine(where) as engine:
        found = list(engine.each(half, [4, 7, 10]))
    results = {one.number: one.value[0] if one.value else str(one.error) for one in found}
    return results, {one.value[1] for one in found if one.value}


def test_this_process_and_a_pool_give_the_same_and_an_error_stops_nothing():
    here, own = outcomes("here")
    assert here == {0: 2, 1: "7 is odd", 2: 5}
    assert own == {os.getpid()}
    pool, others = outcomes("pool:2")
    assert pool == here
    assert os.getpid() not in others


def test_a_dask_cluster_gives_the_same():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        found, others = outcomes(cluster.scheduler_address)
    assert found == {0: 2, 1: "7 is odd", 2: 5}
    assert os.getpid() not in others


def test_a_place_that_is_none_is_a_clear_error(monkeypatch):
    for where in ("pool:0", "pool", "dask", "http://x:1"):
        with pytest.raises(ConfigError, match="wanted here, pool:4"), open_engine(where):
            pass
    pytest.importorskip("distributed")
    monkeypatch.setattr("coattail.engine.CONNECT_SECONDS", 1)
    with pytest.raises(ConfigError, match="no Dask scheduler"), open_engine("tcp://127.0.0.1:9"):
        pass


def test_a_cluster_without_workers_says_how_to_start_one(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("coattail.engine.CONNECT_SECONDS", 2)
    with (
        distributed.LocalCluster(n_workers=0, processes=True, dashboard_address=None) as cluster,
        pytest.raises(ConfigError, match="has no worker"),
        open_engine(cluster.scheduler_address),
    ):
        pass


def test_commas_make_a_grid_and_brackets_hold_together():
    assert grid(["a.C=1,3", "b=x"]) == [("a.C=1", "b=x"), ("a.C=3", "b=x")]
    assert grid(["evaluate.ks=[1,3]"]) == [("evaluate.ks=[1,3]",)]
    assert grid(["a=[1,2],[3,4]"]) == [("a=[1,2]",), ("a=[3,4]",)]
    for wrong in ("a", "=1", "a="):
        with pytest.raises(ConfigError, match="wanted section"):
            grid([wrong])


def test_names_of_experiments_can_be_read_and_used_as_git_refs():
    assert name_of(["train_linear.dismec.C=0.3"]) == "dismec-C-0.3"
    assert name_of(["a.b.ks=[1,3]", "c=x y"]) == "b-ks--1-3-_c-x-y"
