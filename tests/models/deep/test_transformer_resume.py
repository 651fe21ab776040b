"""A fine-tuning that was killed goes on, dropout and mixtures included."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.tiny_bert import save_tiny_bert

pytest.importorskip("transformers", reason="needs the extra coattail[transformers]")

SOURCE = Path(__file__).parents[3] / "src"
WORDS = [f"w{i}" for i in range(20)]

TRAINING = """
    import sys, time
    import numpy as np, scipy.sparse as sp
    from pathlib import Path
    from coattail.models.deep.deep_models import build
    from coattail.models.deep.deep_params import AplcParams
    from coattail.models.deep.fit_data import FitData, RunContext

    folder, encoder, pause = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 22, n)) for n in rng.integers(0, 9, 60)]
    Y = sp.random(60, 12, 0.15, format="csr", random_state=1, dtype=np.float32)
    Y.data[:] = 1
    params = AplcParams(model="aplc", encoder=encoder, max_tokens=10, freeze_encoder=False,
        encoder_lr=1e-3, epochs=3, batch=10, swa_from=1, evaluate_every=4, mix="tmix",
        warmup_steps=4)
    def log(numbers, epoch):
        print("epoch", epoch, flush=True)
        time.sleep(pause)
    data = FitData(texts, Y, valid=(texts, Y))
    context = RunContext(threads=1, log=log, checkpoint=folder / "state.safetensors")
    build(params).fit(data, context).save(folder / "model")
"""


def start_training(folder: Path, encoder: str, pause: float) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    script = folder / "training.py"
    script.write_text(textwrap.dedent(TRAINING))
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), encoder, str(pause)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_fine_tuning_goes_on_and_ends_with_the_same_weights(tmp_path: Path) -> None:
    encoder = save_tiny_bert(tmp_path / "encoder", WORDS)
    whole = start_training(tmp_path / "whole", encoder, 0)
    killed = start_training(tmp_path / "killed", encoder, 600)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "epoch 0\n"  # now it sleeps; 4 of 6 steps are saved
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert (tmp_path / "killed" / "state.safetensors").exists()
    assert not (tmp_path / "killed" / "model").exists()
    resumed = start_training(tmp_path / "killed", encoder, 0)
    output = resumed.communicate()[0]
    assert whole.wait() == 0
    assert resumed.returncode == 0
    assert output.splitlines() == ["epoch 0", "epoch 1", "epoch 2"]
    weights = [tmp_path / run / "model" / "weights.safetensors" for run in ("whole", "killed")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
