"""Linear models beside the peers: seconds, texts per second, memory and quality in one table.

    python benchmarks/linear.py --features data/features --bench ../shared/bench --peers PEERS

PEERS holds one virtual environment per peer (``omikuji``, ``libpecos``; see the README of --bench);
a peer without one runs from this environment. Features are written once in the XMC format, and
every contender reads those files. Each runs in its own process with --threads threads; kernels are
compiled before the clock starts and that time is shown apart. ``--only name,name`` runs some rows,
results are kept in --out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PEERS = {
    "pecos-xrlinear": ("libpecos", "xrlinear", {}),
    "pecos-ovr": ("libpecos", "ovr", {}),
    "omikuji-parabel": ("omikuji", "parabel", {}),
    "omikuji-bonsai": ("omikuji", "bonsai", {}),
    "napkinxc-plt": ("napkinxc", "plt", {}),
    "sklearn-linearsvc": ("sklearn", "linearsvc", {}),
}
# name: (tree params or None, model params)
OURS: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "ovr": (None, {"model": "ovr"}),
    "ovr-pruned": (None, {"model": "ovr", "prune": 0.1}),
    "ovr-pw": (None, {"model": "ovr", "weighting": "pw"}),
    "ovr-pwcb": (None, {"model": "ovr", "weighting": "pwcb"}),
    # By selection.py, on validation: 32 and 64 clusters are 0.2 points of P@5 better and slower to
    # predict, all others are worse.
    "tree": ({"method": "kmeans", "k": 200}, {"model": "plt"}),
    "tree-balanced": ({"method": "shallow", "leaf": 100}, {"model": "plt"}),
    # As preset/linear has it; pruned at 0.1, its default, it is 0.2 points of PSP@5 worse there.
    "parabel": ({"method": "balanced", "trees": 3}, {"model": "plt", "prune": 0.05}),
    "bonsai": ({"method": "kmeans", "trees": 3}, {"model": "plt"}),
    "plt-logistic": ({"method": "kmeans"}, {"model": "plt", "loss": "logistic", "C": 16.0}),
    "fastxml": (None, {"model": "fastxml"}),
}
DEFAULT = "ovr,tree,parabel,bonsai,pecos-xrlinear,omikuji-parabel,omikuji-bonsai"
RATIOS = [  # what, contender, peer, value, better
    ("one tree: train time", "tree", "pecos-xrlinear", "train_seconds", "<"),
    ("three trees (Parabel): train time", "parabel", "omikuji-parabel", "train_seconds", "<"),
    ("three trees (Bonsai): train time", "bonsai", "omikuji-bonsai", "train_seconds", "<"),
    ("one-vs-rest: train time", "ovr", "pecos-ovr", "train_seconds", "<"),
    ("one-vs-rest: train time", "ovr", "pecos-xrlinear", "train_seconds", "<"),
    ("one-vs-rest: predict time", "ovr", "pecos-xrlinear", "predict_seconds", "<"),
    ("one tree: predict time", "tree", "pecos-xrlinear", "predict_seconds", "<"),
    ("one-vs-rest: peak memory", "ovr", "pecos-xrlinear", "peak_rss_mb", "<"),
    ("one tree: peak memory", "tree", "pecos-xrlinear", "peak_rss_mb", "<"),
]


def main() -> None:
    arguments = parse()
    if arguments.child:
        child(arguments)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_xmc_files(arguments)
    for name in arguments.only.split(","):
        if arguments.again or not (arguments.out / f"{name}.json").exists():
            run(name, arguments)
    scores = evaluate(arguments)
    table(arguments, scores)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--features", type=Path, default=Path("data/features"))
    parser.add_argument("--bench", type=Path, default=Path("../shared/bench"))
    parser.add_argument("--peers", type=Path, default=Path("peers"))
    parser.add_argument("--out", type=Path, default=Path("data/benchmarks/linear"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of our trees")
    parser.add_argument("--only", default=DEFAULT)
    parser.add_argument("--again", action="store_true", help="run also what --out already holds")
    parser.add_argument("--child", default="")
    return parser.parse_args()


def write_xmc_files(arguments: argparse.Namespace) -> None:
    from coattail.data.features import Features
    from coattail.data.formats.xmc import write_xmc

    features = Features(arguments.features)
    for split in ("train", "test"):
        path = arguments.out / f"{split}.txt"
        if not path.exists():
            write_xmc(path, features.X(split), features.Y(split))


def run(name: str, arguments: argparse.Namespace) -> None:
    """One contender in its own process; its result.json and predictions land in --out."""
    out = arguments.out / f"{name}.json"
    print(f"{name} ...", flush=True)
    if name in OURS:
        options = ["--out", arguments.out, "--threads", arguments.threads, "--seed", arguments.seed]
        command = [sys.executable, __file__, "--child", name, *options]
    else:
        peer, algorithm, params = PEERS[name]
        files = ["--train", arguments.out / "train.txt", "--test", arguments.out / "test.txt"]
        python = arguments.peers / peer / "bin" / "python"
        own = python if python.exists() else sys.executable
        command = [own, arguments.bench / peer / "bench.py"]
        command += [*files, "--algo", algorithm, "--threads", arguments.threads, "--out", out]
        command += [item for key in params for item in ("--param", f"{key}={params[key]}")]
    with open(arguments.out / f"{name}.log", "w") as log:  # omikuji draws bars by the thousand
        subprocess.run([str(part) for part in command], check=True, stdout=log, stderr=log)


def child(arguments: argparse.Namespace) -> None:
    """Train and predict with one of ours; kernels are compiled before the clock starts."""
    os.environ["COATTAIL_THREADS"] = str(arguments.threads)
    import numpy as np

    from coattail.config import parse
    from coattail.data.formats.xmc import read_xmc
    from coattail.labels import tree_building
    from coattail.labels import tree_params as tree_params_
    from coattail.models.linear.linear_models import build, load
    from coattail.models.linear.linear_params import LinearParams, OvrParams
    from coattail.models.linear.ovr import Ovr

    shape, values = OURS[arguments.child]
    params = parse(values, LinearParams, arguments.child)
    tree_params = None
    if shape:
        tree_params = parse(
            shape | {"seed": arguments.seed}, tree_params_.TreeParams, arguments.child
        )
    (X, Y), (Xt, _) = (read_xmc(arguments.out / f"{s}.txt") for s in ("train", "test"))
    result: dict[str, Any] = {"threads": arguments.threads, "load": list(os.getloadavg())}

    def fit(X: Any, Y: Any) -> Any:
        trees = tree_building.build(tree_params, X, Y) if tree_params else None
        return build(params, trees).fit(X, Y)

    start = time.perf_counter()
    small = fit(X[:1200], Y[:1200])
    Ovr(OvrParams()).fit(X[:1200], Y[:1200])  # large nodes of a tree are solved as one-vs-rest is
    small.predict(Xt[:600], 10)
    small.predict(Xt[:1], 10)
    result["compile_seconds"] = time.perf_counter() - start
    start, cpu = time.perf_counter(), time.process_time()
    model = fit(X, Y)
    result["train_seconds"] = time.perf_counter() - start
    result["train_cpu_seconds"] = time.process_time() - cpu
    folder = arguments.out / f"{arguments.child}-model"
    model.save(folder)
    result["model_bytes"] = sum(path.stat().st_size for path in folder.rglob("*.npy"))
    model = load(folder)
    model.predict(Xt[:600], 10)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        top = model.predict(Xt, 10)
        seconds.append(time.perf_counter() - start)
    result["predict_seconds"] = sorted(seconds)[1]
    start = time.perf_counter()
    for i in range(100):
        model.predict(Xt[i : i + 1], 10)
    result["one_text_ms"] = 10 * (time.perf_counter() - start)
    result["peak_rss_mb"] = peak()
    np.savez(arguments.out / f"{arguments.child}.npz", indices=top.labels, scores=top.scores)
    (arguments.out / f"{arguments.child}.json").write_text(json.dumps(result, indent=1))


def peak() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def evaluate(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """All predictions in --out by the one evaluator of --bench."""
    files = sorted(arguments.out.glob("*.npz"))
    target = arguments.out / "metrics" / "all.json"
    target.parent.mkdir(exist_ok=True)
    pairs = ["--train", arguments.out / "train.txt", "--test", arguments.out / "test.txt"]
    command = [sys.executable, arguments.bench / "evaluate.py", *pairs, "--pred", *files]
    command += ["--out", target, "--quiet"]
    subprocess.run([str(part) for part in command], check=True)
    found = json.loads(target.read_text())
    if len(files) == 1:
        return {files[0].stem: found}
    return {Path(path).stem: value for path, value in found.items()}


def table(arguments: argparse.Namespace, scores: dict[str, dict[str, float]]) -> None:
    results = {name: json.loads((arguments.out / f"{name}.json").read_text()) for name in scores}
    print("| model | train s | texts/s | one text ms | peak MB | model MB ", end="")
    print("| P@1/3/5 | nDCG@5 | PSP@1/3/5 |")
    print("| --- " * 9 + "|")
    for name, quality in scores.items():
        one = results[name]
        p, psp = ("/".join(f"{quality[f'{m}@{k}']:.2f}" for k in (1, 3, 5)) for m in ("P", "PSP"))
        cells = [
            name,
            f"{one['train_seconds']:.1f}",
            f"{quality['n_test'] / one['predict_seconds']:,.0f}",
            f"{one['one_text_ms']:.2f}" if "one_text_ms" in one else "",
            f"{one['peak_rss_mb']:,.0f}",
            f"{one['model_bytes'] / 1e6:.1f}",
            p,
            f"{quality['nDCG@5']:.2f}",
            psp,
        ]
        print("| " + " | ".join(cells) + " |")
    print()
    for what, ours, peer, key, _ in RATIOS:
        if ours in results and peer in results:
            ratio = results[ours][key] / results[peer][key]
            print(f"{what}: {ours} / {peer} = {ratio:.3f}")


if __name__ == "__main__":
    main()
