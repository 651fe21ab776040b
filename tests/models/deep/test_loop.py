"""The training loop: Adam, clipping and averaging by hand; resuming after a kill."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from coattail.models.deep import batching
from coattail.models.deep.deep_params import XmlCnnParams
from coattail.models.deep.device import threads
from coattail.models.deep.fit_data import RunContext
from coattail.models.deep.training.checkpoint import Checkpoint, forget
from coattail.models.deep.training.fitting import plain_course
from coattail.models.deep.training.loop import Trainer, step_seed
from coattail.models.deep.training.optimiser import (
    BLOCK,
    Adam,
    NormQueue,
    TorchAdam,
    WeightAverage,
)

SOURCE = Path(__file__).parents[3] / "src"


def test_adam_takes_the_step_computed_by_hand() -> None:
    p = torch.tensor([1.0, -2.0], requires_grad=True)
    adam = Adam({"p": p}, lr=0.1, beta2=0.5, beta1=0.5, eps=0.0)
    p.grad = torch.tensor([2.0, 4.0])
    adam.step()  # first step: lr * sign(gradient)
    torch.testing.assert_close(p.detach(), torch.tensor([0.9, -2.1]))
    p.grad = torch.tensor([0.0, 0.0])
    adam.step()
    # m = g/4, v = g^2/4, corrected by sqrt(3/4)/(3/4): 0.1 * (1/4)/(1/2) * 2/sqrt(3)
    moved = 0.1 * 0.5 * math.sqrt(0.75) / 0.75
    torch.testing.assert_close(p.detach(), torch.tensor([0.9 - moved, -2.1 - moved]))


def test_adam_matches_torch_on_dense_gradients() -> None:
    start = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    ours, theirs = (start.clone().requires_grad_() for _ in range(2))
    adam, other = Adam({"p": ours}, 0.01), torch.optim.Adam([theirs], 0.01)
    for step in range(5):
        gradient = torch.randn(4, 3, generator=torch.Generator().manual_seed(step + 1))
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        adam.step()
        other.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("beta2", [0.999, 0.99])
def test_torch_adam_is_torchs_byte_for_byte_and_goes_on_where_it_was(beta2: float) -> None:
    sizes = {"a": (3,), "b": (5, 7), "c": (BLOCK + 13,), "d": ()}
    ours, theirs = (
        {
            name: torch.nn.Parameter(torch.randn(size, generator=draws))
            for name, size in sizes.items()
        }
        for draws in (torch.Generator().manual_seed(0), torch.Generator().manual_seed(0))
    )
    rates = {"a": 1e-3, "b": 1e-3, "c": 1e-2, "d": 1e-2}
    adam = TorchAdam(ours, rates, beta2)
    groups = [{"params": [p], "lr": rates[name]} for name, p in theirs.items()]
    other = torch.optim.Adam(groups, betas=(0.9, beta2))
    draws = torch.Generator().manual_seed(1)
    for step in range(7):
        adam.zero_grad()
        for name, p in theirs.items():
            gradient = torch.randn(p.shape, generator=draws) * 10.0 ** (step - 4)
            takes_part = name != "a" or step >= 2  # steps are counted per parameter
            ours[name].grad = gradient if takes_part else None
            p.grad = gradient.clone() if takes_part else None
        adam.step(lambda f, items: [f(i) for i in items])
        other.step()
        assert all(torch.equal(ours[name], p) for name, p in theirs.items())
        state = {
            f"{key}.{name}": tensor
            for name, p in theirs.items()
            for key, tensor in other.state.get(p, {}).items()
        }
        assert adam.state().keys() == state.keys()
        assert all(torch.equal(adam.state()[key], tensor) for key, tensor in state.items())
        kept = {key: tensor.clone() for key, tensor in adam.state().items()}
        adam = TorchAdam(ours, rates, beta2)
        adam.restore(kept, step + 1)


def test_rows_without_gradient_stay_as_they_are() -> None:
    table = torch.nn.Embedding(5, 2, sparse=True)
    before = table.weight.detach().clone()
    adam = Adam({"table": table.weight}, lr=0.1)
    for _ in range(3):
        adam.zero_grad()
        table(torch.tensor([1, 3, 3])).sum().backward()
        adam.step()
    changed = (table.weight.detach() != before).any(dim=1)
    assert changed.tolist() == [False, True, False, True, False]


def test_clipping_follows_the_queue_of_norms() -> None:
    queue = NormQueue(5)
    p = torch.zeros(2, requires_grad=True)

    def clip(norm: float) -> float:
        p.grad = torch.tensor([0.0, norm])
        queue.clip({"p": p})
        return float(p.grad.norm())

    assert clip(50.0) == 50  # the queue starts with inf: nothing is clipped
    assert list(queue.norms) == [math.inf, 1.0]
    for _ in range(3):
        clip(0.1)
    assert list(queue.norms) == pytest.approx([math.inf, 1.0, 0.1, 0.1, 0.1])
    assert clip(7.0) == 7  # inf is still there
    assert list(queue.norms) == pytest.approx([1.0, 0.1, 0.1, 0.1, 1.0])
    assert clip(7.0) == pytest.approx(5)  # limit 5 * max
    for _ in range(4):
        clip(0.1)
    assert clip(0.1) == pytest.approx(0.1)
    assert list(queue.norms) == pytest.approx([0.1] * 5)
    assert clip(0.7) == pytest.approx(0.5)
    assert queue.norms[-1] == pytest.approx(0.2)  # at most twice the largest


def test_clipping_counts_repeated_rows_of_a_sparse_gradient_once() -> None:
    table = torch.nn.Embedding(3, 1, sparse=True)
    table(torch.tensor([1, 1])).sum().backward()
    assert NormQueue(2).clip({"table": table.weight}) == pytest.approx(2)


def test_average_of_weights_by_hand() -> None:
    p = torch.tensor([1.0])
    average = WeightAverage({"p": p})
    average.update()  # not started: nothing happens
    average.swap()
    assert p.item() == 1
    average.start()
    p.fill_(4.0)
    average.update()
    assert average.mean["p"].item() == 2.5
    p.fill_(7.0)
    average.update()
    assert average.mean["p"].item() == 4
    average.swap()
    assert (p.item(), average.mean["p"].item()) == (4, 7)
    average.swap()
    assert (p.item(), average.mean["p"].item()) == (7, 4)


def test_step_seeds_differ_between_steps_and_seeds() -> None:
    seeds = {step_seed(seed, step) for seed in range(5) for step in range(50)}
    assert len(seeds) == 250


def test_every_text_is_in_one_batch_and_batches_have_similar_lengths() -> None:
    lengths = np.random.default_rng(0).integers(1, 200, 1000)
    batches = batching.epoch_batches(lengths, 16, np.random.default_rng(1))
    assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
    spread = np.mean([np.ptp(lengths[b]) for b in batches])
    assert spread < 20  # about 190 without sorting
    again = batching.epoch_batches(lengths, 16, np.random.default_rng(1))
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


def test_the_step_size_sinks_in_a_line() -> None:
    params = XmlCnnParams(model="xmlcnn", epochs=2, batch=2, pieces=1, lr_end=0.5)
    scales = []

    def backward(net: torch.nn.Module, *_: object) -> torch.Tensor:
        scales.append(course.optimiser.scale)
        loss = net(torch.ones(1)).square().sum()
        loss.backward()
        return loss.detach()

    net, lengths = torch.nn.Linear(1, 1), np.ones(4, np.int64)
    course = plain_course("test", net, params, lengths, backward)
    assert Trainer(course, RunContext(), Checkpoint(None, {})).run() == 2
    assert scales == [1, 0.875, 0.75, 0.625]


def test_a_judge_that_changes_the_number_of_threads_does_not_change_that_of_the_steps() -> None:
    # Numba's kernels do so when they start; sums of large operations depend on it.
    params = XmlCnnParams(model="xmlcnn", epochs=3, batch=2, pieces=1)
    seen = []

    def backward(net: torch.nn.Module, *_: object) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        loss = net(torch.ones(1)).square().sum()
        loss.backward()
        return loss.detach()

    def judge() -> dict[str, float]:
        torch.set_num_threads(3)
        return {"valid_ndcg_at_5": 1.0}

    for alone in (False, True):
        net = torch.nn.Linear(1, 1)
        net.in_threads = alone
        course = plain_course("test", net, params, np.ones(4, np.int64), backward)
        with threads(1):
            Trainer(replace(course, judge=judge), RunContext(), Checkpoint(None, {})).run()
    assert set(seen) == {1}


def test_a_checkpoint_of_the_former_form_is_not_read_and_the_training_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "old.ckpt"
    position = {"begun_with": {"format": "another digest"}, "epoch": 3, "done": True}
    save_file({"weight.weight": torch.zeros(1)}, path, {"position": json.dumps(position)})
    assert Checkpoint(path, {"format": "a digest"}).read("train x") is None
    assert caplog.messages == [f"train x: starting anew, since {path} cannot be read"]


def test_only_files_of_the_training_itself_are_forgotten(tmp_path: Path) -> None:
    kept = Checkpoint(tmp_path / "a.ckpt", {})
    for one in (kept, kept.part("classifier"), Checkpoint(tmp_path / "a-b.ckpt", {})):
        one.write({"x": torch.ones(1)}, {})
    (tmp_path / "a.tail").mkdir()
    forget(tmp_path / "a.ckpt")
    assert [path.name for path in tmp_path.iterdir()] == ["a-b.ckpt"]
    forget(tmp_path / "missing" / "a.ckpt")


TRAINING = """
    import sys, time
    import numpy as np, scipy.sparse as sp, torch
    from pathlib import Path
    from coattail.arrays import Ragged
    from coattail.models.deep.deep_models import build
    from coattail.models.deep.deep_params import AttentionXmlParams
    from coattail.models.deep.fit_data import FitData, RunContext

    folder, pause = Path(sys.argv[1]), float(sys.argv[2])
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 9, 120)
    tokens = Ragged(np.cumsum([0, *lengths]), rng.integers(1, 30, lengths.sum()).astype(np.int32))
    Y = sp.random(120, 12, 0.15, format="csr", random_state=1, dtype=np.float32)
    Y.data[:] = 1
    params = AttentionXmlParams(model="attentionxml", epochs=4, batch=10, hidden=4, fc=[4],
        embedding_dim=6, head_dim=6, candidates=6, swa_from=1, evaluate_every=5, mix="tailmix",
        lr_end=0.1)
    def log(numbers, epoch):
        print("epoch", epoch, flush=True)
        time.sleep(pause)
    data = FitData(tokens, Y, valid=(tokens, Y), vocabulary_size=30)
    context = RunContext(threads=1, log=log, checkpoint=folder / "state.safetensors")
    build(params).fit(data, context).save(folder / "model")
"""


def start_training(folder: Path, pause: float) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    script = folder / "training.py"
    script.write_text(textwrap.dedent(TRAINING))
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), str(pause)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_training_goes_on_and_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = start_training(tmp_path / "whole", 0)
    killed = start_training(tmp_path / "killed", 60)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "epoch 0\n"  # now it sleeps, after 10 of 12 steps were saved
    checkpoint = tmp_path / "killed" / "state.safetensors"
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert checkpoint.exists()
    assert not (tmp_path / "killed" / "model").exists()
    resumed = start_training(tmp_path / "killed", 0)
    output = resumed.communicate()[0]
    assert whole.wait() == 0
    assert resumed.returncode == 0
    assert output.splitlines() == ["epoch 0", "epoch 1", "epoch 2", "epoch 3"]
    weights = [tmp_path / run / "model" / "weights.safetensors" for run in ("whole", "killed")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
