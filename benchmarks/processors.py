"""Does every stage give the same bytes on another processor?

    python benchmarks/processors.py [--processor any] [--cpu host Haswell-v4 EPYC-v3]
    python benchmarks/processors.py --cost 3000  # CPU seconds of both settings, in turn

Runs all stages that compute, with small models of every kind on a small demo corpus, once on this
machine (`host`) and once for each emulated processor, and compares every file they leave.
Emulation is by qemu-user (`apt-get install qemu-user`), which has the instructions and the maker's
name of the processor that is asked for. Stages run in one process, without DVC and MLflow.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
WORDS = [f"w{i}" for i in range(40)]

DEMO = {"train": 160, "valid": 40, "test": 40, "labels": 30, "words": 300, "seed": 1}
TFIDF = {"train": "features/tfidf/train", "tree": "flat"}
WORD = {"tree": "flat", "epochs": 2, "batch": 32, "embedding_dim": 12, "swa_from": 1}
ATTENTION = WORD | {"model": "attentionxml", "hidden": 8, "fc": [8], "candidates": 0}
PIECES = {"tree": "flat", "encoder": "encoder", "max_tokens": 24, "epochs": 2, "batch": 32}
LABELS = {"epochs": 2, "dim": 16, "hidden": 8, "embedding_dim": 12, "head_count": 10}
VARIANTS: dict[str, dict[str, dict]] = {
    "build_plt": {"flat": {"method": "flat"}, "tree": {"method": "kmeans", "seed": 0}},
    "augment_tails": {"taug": {"tau": 0.1, "n_aug": 2}},
    "train_linear": {
        "ovr": TFIDF | {"model": "ovr", "weighting": "pwcb"},
        "ovr-taug": TFIDF | {"model": "ovr", "train": "augmented/taug"},
        "plt": TFIDF | {"model": "plt", "tree": "tree"},
        "fastxml": TFIDF | {"model": "fastxml", "trees": 2},
        "nearest": TFIDF | {"model": "nearest"},
    },
    "train_deep": {
        "attention": ATTENTION,
        "candidates": ATTENTION | {"candidates": 10, "mix": "tailmix", "mix_from": 1},
        "wordmix": ATTENTION | {"mix": "wordmix", "weighting": "pw"},
        "ssmix": ATTENTION | {"mix": "ssmix", "label_outputs": True},
        "levels": ATTENTION | {"tree": "tree", "candidates": 4},
        "xmlcnn": WORD | {"model": "xmlcnn", "filters": 8},
        "bilstm": WORD | {"model": "bilstm", "hidden": 8, "fc": [8]},
        "frozen": PIECES | {"model": "laroberta", "fc": [8]},
        "tuned": PIECES | {"model": "laroberta", "fc": [8], "freeze_encoder": False},
        "aplc": PIECES | {"model": "aplc", "cuts": [0.5], "freeze_encoder": False},
    },
    "transfer": {
        "httn": LABELS | {"model": "httn"},
        "bbn": {k: v for k, v in LABELS.items() if k != "head_count"} | {"model": "bbn"},
        "oltr": {k: v for k, v in LABELS.items() if k != "head_count"} | {"model": "oltr"},
        "ltmcp": LABELS | {"model": "ltmcp"},
        "dxml": {k: v for k, v in LABELS.items() if k != "head_count"} | {"model": "dxml"},
    },
    "ensemble": {"both": {"first": "ovr", "second": "attention"}},
    "rerank": {
        "by-q": {"base": "ovr", "strategy": "propensity"},
        "learned": {"base": "both", "strategy": "learned", "calibration": "boosted"},
    },
}
PLAIN = ("download", "preprocess")


# --- one processor -------------------------------------------------------------------------------


def prepare(folder: Path, processor: str) -> None:
    """A project of its own: params.yaml and what stages read beside it."""
    from ruamel.yaml import YAML

    from coattail.pipeline import schema
    from tests.tiny_bert import save_tiny_bert

    yaml = YAML()
    params = yaml.load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    params |= VARIANTS | {"processor": processor, "device": "cpu"}
    params["dataset"]["demo"] |= DEMO
    params["evaluate"] |= {"base": "ovr", "resamples": 50}
    params["evaluate"]["best"] = {"by": "psp_at_5"}
    schema.check(params)
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "conf", folder / "conf")
    with open(folder / "params.yaml", "w", encoding="utf-8") as file:
        yaml.dump(params, file)
    save_tiny_bert(folder / "encoder", WORDS)


def compute(folder: Path, threads: int) -> None:
    """Run all stages in ``folder``, as the pipeline would, and print a digest of every file."""
    os.chdir(folder)
    import stages  # noqa: F401  (settles the processor, before numpy is imported)
    from coattail import tracking
    from coattail.config import read_yaml
    from coattail.pipeline import candidates, registry, runner

    tracking.stage = unrecorded
    runner.limit_threads(threads)
    params = read_yaml("params.yaml")
    for name in (*PLAIN, *registry.VARIANTS):
        for variant in params[name] if name in registry.VARIANTS else [None]:
            start = time.process_time()
            run_stage(name, variant)
            print(f"{name} {variant or ''} {time.process_time() - start:.1f} s", file=sys.stderr)
    candidates.write(Path("data/candidates.json"), params, {})
    run_stage("evaluate", None)
    files = [path for top in ("data", "plots") for path in sorted(Path(top).rglob("*"))]
    digests = {str(p): hashlib.md5(p.read_bytes()).hexdigest() for p in files if p.is_file()}
    print(json.dumps(digests))


def run_stage(name: str, variant: str | None) -> None:
    module = __import__(f"stages.{name}", fromlist=["main"])
    module.main(*([variant] if variant else []))


class Unrecorded:
    """What a stage tells about itself, told to nobody."""

    def __init__(self) -> None:
        self.computed: list = []

    def log(self, *_: object, **__: object) -> None: ...

    metrics = note = found = log


@contextmanager
def unrecorded(*_: object):
    yield Unrecorded()


# --- what it costs -------------------------------------------------------------------------------


def train(processor: str, texts: int, threads: int) -> None:
    """Train attentionxml on the first texts of data/features and print the CPU seconds it took."""
    from coattail import processor as settings

    settings.settle(processor)
    from coattail.data.features import Features
    from coattail.models.deep import deep_models
    from coattail.models.deep.deep_params import AttentionXmlParams
    from coattail.models.deep.fit_data import FitData, RunContext
    from coattail.pipeline.runner import limit_threads

    limit_threads(threads)
    features = Features("data/features")
    params = AttentionXmlParams(model="attentionxml", tree="flat", epochs=1)
    tokens, Y = features.tokens("train").take(range(texts)), features.Y("train")[:texts]
    begin = time.process_time()
    data = FitData(tokens, Y, vocabulary_size=len(features.vocabulary))
    deep_models.build(params).fit(data, RunContext(threads=threads))
    print(f"{time.process_time() - begin:.2f}")


def cost(texts: int, threads: int, rounds: int = 3) -> None:
    for number in range(rounds):
        seconds = {}
        for processor in ("native", "any"):
            words = [sys.executable, __file__, "--processor", processor, "--train", str(texts)]
            done = subprocess.run(
                [*words, "--threads", str(threads)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
            seconds[processor] = float(done.stdout.splitlines()[-1])
        if number:  # the first round may compile
            ratio = seconds["any"] / seconds["native"]
            print(
                f"native {seconds['native']:.1f} s, any {seconds['any']:.1f} s: {ratio:.2f} times"
            )


# --- all of them ---------------------------------------------------------------------------------


def digests(cpu: str, work: Path, processor: str, threads: int) -> dict[str, str]:
    """What all stages leave on the processor ``cpu``."""
    shutil.copytree(work / "project", work / cpu)
    emulator = [] if cpu == "host" else ["qemu-x86_64", "-cpu", cpu]
    words = [*emulator, sys.executable, __file__, "--compute", str(work / cpu)]
    # The kernels of one processor are those of all, so that nothing is compiled under emulation.
    begin = time.monotonic()
    done = subprocess.run(
        [*words, "--threads", str(threads)], stdout=subprocess.PIPE, text=True, check=True
    )
    print(f"{cpu}: {time.monotonic() - begin:.0f} s with {processor}, {threads} threads")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", nargs="+", default=["host", "Haswell-v4", "EPYC-v3"])
    parser.add_argument("--processor", default="any", choices=["any", "native"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cost", type=int, metavar="TEXTS", help="train on data/features")
    parser.add_argument("--compute", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--train", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(given.processor, given.train, given.threads)
        return 0
    if given.cost:
        cost(given.cost, given.threads)
        return 0
    if given.compute:
        compute(given.compute, given.threads)
        return 0
    if given.cpu != ["host"] and not shutil.which("qemu-x86_64"):
        parser.error("qemu-x86_64 is missing: apt-get install qemu-user (or --cpu host)")
    with tempfile.TemporaryDirectory() as work:
        prepare(Path(work) / "project", given.processor)
        found = {c: digests(c, Path(work), given.processor, given.threads) for c in given.cpu}
    first, *others = found.values()
    wrong = 0
    for cpu, other in zip(given.cpu[1:], others, strict=True):
        differing = sorted(p for p in {*first, *other} if first.get(p) != other.get(p))
        wrong += len(differing)
        print(f"{cpu}: {len(first) - len(differing)} of {len(first)} files as on {given.cpu[0]}")
        for path in differing:
            print(f"  differs: {path}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
