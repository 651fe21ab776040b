"""Threads and processes: who computes changes neither bytes nor the course of training."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from safetensors.torch import load_file

from coattail.arrays import Ragged
from coattail.config import parse
from coattail.errors import ConfigError
from coattail.models.deep import device
from coattail.models.deep.deep_models import build
from coattail.models.deep.deep_params import DeepParams
from coattail.models.deep.nets.layers import Words
from coattail.models.deep.nets.step import Step
from coattail.models.deep.training import processes
from coattail.models.deep.training.batch_pieces import Pieces, in_turn, workers
from coattail.models.deep.training.fitting import build_net, start_weights
from coattail.models.deep.transfer import transfer_models
from coattail.models.deep.transfer.transfer_params import TransferParams
from coattail.pipeline.runner import limit_threads
from coattail.progress import progress
from coattail.testing.model_contract import digest
from coattail.testing.network_contract import fit

SOURCE = Path(__file__).parents[3] / "src"

MODELS: dict[str, dict[str, Any]] = {
    "flat": {"model": "attentionxml", "candidates": 0, "mix": "tailmix"},
    "candidates": {"model": "attentionxml", "candidates": 24},
    "xmlcnn": {"model": "xmlcnn", "mix": "wordmix"},
    "bilstm": {"model": "bilstm"},
}


def corpus(n: int, n_labels: int, longest: int) -> tuple[Ragged, sp.csr_matrix]:
    rng = np.random.default_rng(3)
    lengths = rng.integers(longest // 2, longest, n)
    words = rng.integers(1, 200, lengths.sum()).astype(np.int32)
    Y = sp.csr_matrix((rng.random((n, n_labels)) < 0.02).astype(np.float32))
    return Ragged(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), words), Y


@pytest.mark.parametrize("name", MODELS)
def test_number_of_threads_changes_no_byte_of_a_model_of_real_size(
    name: str, tmp_path: Path
) -> None:
    # torch splits operations of this size between threads and then adds in another order.
    tokens, Y = corpus(64, 300, 80)
    params = parse({"epochs": 1, **MODELS[name]}, DeepParams, name)
    scores = []
    for threads in (1, 3):
        model = fit(build(params), tokens, Y, vocabulary_size=200, threads=threads)
        model.save(tmp_path / str(threads))
        scores.append(model.predict(tokens, 9).scores.tobytes())
    assert digest(tmp_path / "1") == digest(tmp_path / "3")
    assert scores[0] == scores[1]


@pytest.mark.parametrize("name", ["httn", "bbn", "oltr"])
def test_number_of_threads_changes_no_byte_of_a_transfer_model_in_pieces(
    name: str, tmp_path: Path
) -> None:
    tokens, Y = corpus(64, 60, 80)
    params = parse({"model": name, "epochs": 1, "pieces": 2}, TransferParams, name)
    for threads in (1, 3):
        model = fit(transfer_models.build(params), tokens, Y, vocabulary_size=200, threads=threads)
        model.save(tmp_path / str(threads))
    assert digest(tmp_path / "1") == digest(tmp_path / "3")


def test_pieces_of_a_batch_give_the_gradients_of_the_whole() -> None:
    tokens, Y = corpus(11, 30, 20)
    params = parse({"model": "bilstm", "dropout": 0.0, "embedding_dropout": 0.0}, DeepParams, "x")
    found = []
    for count in (1, 2, 3):
        net = build_net(params, 30, 200, 16)
        start_weights(net, params, tokens, Y, None)
        weights = dict(net.named_parameters())
        rows = np.arange(11)
        loss = Pieces(net, weights, count, "cpu").backward(rows, gradients(tokens, Y), in_turn)
        found.append((loss, {name: p.grad.to_dense() for name, p in weights.items()}))
    for loss, grads in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-6)
        for name, gradient in grads.items():
            torch.testing.assert_close(gradient, found[0][1][name], rtol=1e-4, atol=1e-8)


def gradients(tokens: Ragged, Y: sp.csr_matrix) -> Any:
    from coattail.models.deep import batching

    def task(net: Any, rows: Any, piece: int) -> torch.Tensor:
        batch = batching.pad(tokens, rows, 64, "cpu")
        targets = batching.dense_targets(Y, rows, "cpu")
        loss: torch.Tensor = net.backward(batch, Step(targets, None, torch.Generator()))
        return loss

    return task


def test_more_pieces_than_texts_leave_some_without_work() -> None:
    tokens, Y = corpus(2, 30, 20)
    params = parse({"model": "xmlcnn", "pieces": 4, "epochs": 1}, DeepParams, "x")
    assert fit(build(params), tokens, Y, vocabulary_size=200).predict(tokens, 3).n == 2


def test_copies_of_a_net_share_numbers_but_not_gradients() -> None:
    params = parse({"model": "attentionxml"}, DeepParams, "x")
    net = build_net(params, 50, 200, 16)
    pieces = Pieces(net, dict(net.named_parameters()), 3, "cpu")
    first, other = pieces.nets[0], pieces.nets[2]
    for a, b in zip(first.parameters(), other.parameters(), strict=True):
        assert a is not b
        assert a.data_ptr() == b.data_ptr()
    assert [b.data_ptr() for b in first.buffers()] == [b.data_ptr() for b in other.buffers()]


def test_workers_leave_the_number_of_threads_as_it_was() -> None:
    before = torch.get_num_threads()
    with workers(3) as each:
        assert torch.get_num_threads() == 1
        assert set(each(lambda _: torch.get_num_threads(), range(6))) == {1}
    assert torch.get_num_threads() == before


def test_error_in_a_thread_reaches_the_caller() -> None:
    def fail(item: int) -> None:
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"), workers(2) as each:
        each(fail, range(4))


@pytest.mark.parametrize("label_outputs", [False, True])
@pytest.mark.parametrize("per_text", [False, True])
def test_first_layer_before_or_after_reading_gives_the_same_logits(
    label_outputs: bool, per_text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"model": "attentionxml", "hidden": 8, "fc": [6, 5], "label_outputs": label_outputs}
    params = parse(settings, DeepParams, "x")
    net = build_net(params, 40, 50, 10)
    generator = torch.Generator().manual_seed(1)
    for p in net.parameters():
        p.data = torch.randn(p.shape, generator=generator) / 2
    states = torch.randn(3, 7, 16, generator=generator)
    mask = torch.arange(7) < torch.tensor([[7], [4], [1]])
    columns = torch.randint(40, (3, 9) if per_text else (9,), generator=generator)
    found = []
    for first in (False, True):
        monkeypatch.setattr(type(net), "_first_layer_first", lambda *_, first=first: first)
        found.append(net.logits(states, mask, columns))
    torch.testing.assert_close(*found)


# --- several processes

TRAINING = """
    import json, sys
    from pathlib import Path
    import numpy as np, scipy.sparse as sp, torch
    from coattail.arrays import Ragged
    from coattail.models.deep.training import processes
    from coattail.models.deep.deep_models import build
    from coattail.config import parse
    from coattail.models.deep.deep_params import DeepParams
    from coattail.models.deep.fit_data import FitData, RunContext
    from coattail.models.deep.transfer import transfer_models
    from coattail.models.deep.transfer.transfer_params import TransferParams
    from coattail.labels.tree import Tree

    folder = Path(sys.argv[1])
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 12, 150)
    tokens = Ragged(np.cumsum([0, *lengths]), rng.integers(1, 30, lengths.sum()).astype(np.int32))
    Y = sp.random(150, 12, 0.15, format="csr", random_state=1, dtype=np.float32)
    Y.data[:] = 1
    trees = [Tree(np.array([-1, 0, 0], np.int32), np.arange(12, dtype=np.int32) % 2 + 1)]
    common = {"epochs": 3, "batch": 14, "embedding_dim": 6, "swa_from": 1, "evaluate_every": 4}
    small = {"hidden": 4, "fc": [4]}
    sets = {
        "candidates": {"model": "attentionxml", **small, "head_dim": 6, "candidates": 6,
                       "mix": "tailmix"},
        "tree": {"model": "attentionxml", **small, "candidates": 1, "tree": "pairs", "epochs": 2},
        "xmlcnn": {"model": "xmlcnn", "filters": 4, "bottleneck": 8},
    }
    rivals = {
        "httn": {"head_share": 0.5, "sets": 3, "finetune": True, "finetune_lr": 0.01},
        "bbn": {},
        "oltr": {"memory_epochs": 2},
        "ltmcp": {"head_share": 0.5},
        "dxml": {"walks": 2, "walk_length": 5},
    }
    shape = {"epochs": 3, "batch": 14, "embedding_dim": 6, "hidden": 4, "dim": 6, "pieces": 2}
    models = {
        name: build(parse({**common, **settings}, DeepParams, name))
        for name, settings in sets.items()
    } | {
        name: transfer_models.build(parse({"model": name, **shape, **more}, TransferParams, name))
        for name, more in rivals.items()
    }
    data = FitData(tokens, Y, (tokens, Y), vocabulary_size=30, trees=trees)
    with processes.together("cpu") as device:
        for name, model in models.items():
            curve = []
            log = lambda numbers, epoch: curve.append(numbers["loss"])
            model.fit(data, RunContext(device, 1, log, folder / f"{name}.ckpt"))
            if processes.leads():
                model.save(folder / name)
                (folder / f"{name}.json").write_text(json.dumps(curve))
            else:
                assert curve == []
"""


def run_script(folder: Path, source: str, together: int) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(textwrap.dedent(source))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={together}"]
    command = [sys.executable, *(launcher if together > 1 else []), str(script), str(folder)]
    unset = ("RANK", "WORLD_SIZE", processes.WANTED)
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    environment |= {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)


def test_two_processes_train_as_one_with_the_whole_batch(tmp_path: Path) -> None:
    for together in (1, 2):
        done = run_script(tmp_path / str(together), TRAINING, together)
        assert done.returncode == 0, done.stderr
    for name in ("candidates", "tree", "xmlcnn"):
        one, two = (json.loads((tmp_path / n / f"{name}.json").read_text()) for n in "12")
        assert len(one) >= 3
        assert one[-1] < one[0] or name == "tree"
        np.testing.assert_allclose(two, one, rtol=1e-5)
        for file in sorted((tmp_path / "1" / name).glob("*.safetensors")):
            ours, theirs = load_file(file), load_file(tmp_path / "2" / name / file.name)
            for key, tensor in ours.items():
                torch.testing.assert_close(theirs[key], tensor, rtol=1e-4, atol=1e-6)
    for name in ("httn", "bbn", "oltr", "ltmcp", "dxml"):
        assert digest(tmp_path / "1" / name) == digest(tmp_path / "2" / name)


FAILING = """
    import os, signal, sys, time
    from coattail.pipeline import runner
    from coattail.models.deep.training import processes
    from coattail.errors import DataError
    import torch

    def main(folder):
        with processes.together("cpu"):
            if processes.rank() == 1:
                raise DataError("text 7 is broken")
            processes.summed(torch.ones(1))

    os.chdir(sys.argv[1])
    with open("params.yaml", "w") as file:
        print("device: cpu", file=file)
    runner.run(main)
"""


def test_error_in_one_process_ends_all_with_its_message(tmp_path: Path) -> None:
    done = run_script(tmp_path / "failing", FAILING, 2)
    assert done.returncode != 0
    assert "error: text 7 is broken" in done.stderr


def test_a_stage_starts_its_processes_itself_and_is_quiet_about_failures(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text(
        "import os, sys\n"
        "open(sys.argv[1] + os.environ['RANK'], 'w').close()\n"
        "sys.exit(3 if sys.argv[2] == 'fail' else 0)\n"
    )
    source = """
        import sys
        from coattail.models.deep.training import processes
        assert processes.launch("part", sys.argv[1] + "/rank", "go")
        processes.launch("part", sys.argv[1] + "/again", "fail")
        raise AssertionError("not reached")
    """
    script = tmp_path / "start.py"
    script.write_text(textwrap.dedent(source))
    path = os.pathsep.join([str(SOURCE), str(tmp_path)])
    environment = {**os.environ, "PYTHONPATH": path, processes.WANTED: "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "rank0").exists()
    assert (tmp_path / "rank1").exists()


def test_one_process_is_not_started_and_a_wrong_number_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv(processes.WANTED, "1")
    assert processes.launch("nothing") is False
    monkeypatch.setenv(processes.WANTED, "3")
    assert processes.launch("nothing", most=1) is False
    monkeypatch.setenv(processes.WANTED, "many")
    with pytest.raises(ConfigError, match="COATTAIL_PROCESSES=many"):
        processes.launch("nothing")


def test_processes_of_a_machine_share_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert [limit_threads(threads) for threads in (1, 4)] == [1, 2]


def test_only_the_leader_shows_progress(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("coattail").propagate = True
    with caplog.at_level(logging.INFO, "coattail"):
        for shown in (False, True):
            caplog.clear()
            with progress("train", 3, "texts", shown=shown) as bar:
                bar.advance(3)
            assert bool(caplog.records) is shown


# --- mixed precision and what a GPU reports


@pytest.mark.parametrize("name", [*MODELS, "hiddenmix"])
def test_bfloat16_changes_the_loss_by_rounding_only(name: str) -> None:
    from coattail.models.deep import batching
    from coattail.models.deep.training.fitting import Mixer
    from coattail.models.deep.training.loop import Moment

    settings = MODELS.get(name, {"model": "attentionxml", "candidates": 16, "mix": "hiddenmix"})
    tokens, Y = corpus(8, 40, 20)
    params = parse({"dropout": 0.0, "embedding_dropout": 0.0, **settings}, DeepParams, name)
    mixer = Mixer(params, Y, np.ones(40))
    batch = batching.pad(tokens, np.arange(8), 64, "cpu")
    targets = batching.dense_targets(Y, np.arange(8), "cpu")
    losses = []
    for enabled in (False, True):
        net = build_net(params, 40, 200, 16)
        start_weights(net, params, tokens, Y, None)
        mixture = mixer.at(8, Moment(0, 0, 0), "cpu")
        generator = torch.Generator().manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = net.backward(batch, Step(targets, None, generator, *mixture))
        assert loss.dtype == torch.float32
        used = [p for p in net.parameters() if p.grad is not None]
        assert all(p.grad.dtype == torch.float32 for p in used)
        losses.append(float(loss))
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert losses[1] != losses[0]  # it was really used


def test_mixed_precision_is_for_cuda_only() -> None:
    assert not device.autocast("cpu")._enabled
    assert device.autocast("cpu").fast_dtype == torch.bfloat16


def test_usage_of_a_gpu_is_told_and_utilisation_may_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert device.usage("cpu") == {}
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 3 * 2**20)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    monkeypatch.setattr(torch.cuda, "utilization", lambda _: 42)
    assert device.usage("cuda:0") == {"gpu_memory_mb": 3.0, "gpu_utilisation_percent": 42.0}

    def missing(_: str) -> int:
        raise ModuleNotFoundError("pynvml does not seem to be installed")

    monkeypatch.setattr(torch.cuda, "utilization", missing)
    assert device.usage("cuda:0") == {"gpu_memory_mb": 3.0}


@pytest.mark.filterwarnings("error")
def test_vectors_mapped_from_a_file_are_copied_without_a_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", np.ones((9, 4), np.float32))
    words = Words(9, 4, trained=True, rate=0.0)
    words.fill(np.load(tmp_path / "vectors.npy", mmap_mode="r"))
    assert words.table.weight[1:].eq(1).all()
    assert words.table.weight[0].eq(0).all()
