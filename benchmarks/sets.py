"""Quality on small datasets beside the peers: bibtex, delicious, debtags.

    python benchmarks/sets.py --data ../shared/data --bench ../shared/bench --peers PEERS

Every contender of ``linear.py`` runs on every set with the same files: unit rows, the train part
to learn from (a validation part is not used), the test part to be judged on. Seconds of sets this
small say little about speed. PEERS as in ``linear.py``; napkinXC and scikit-learn run from this
environment where PEERS has none of theirs.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
from pathlib import Path

import linear

from coattail.arrays import unit_rows
from coattail.data import corpus
from coattail.data.formats.xmc import read_xmc, write_xmc

SETS = "bibtex,delicious,debtags"
MODELS = (
    "ovr,tree,parabel,bonsai,plt-logistic,fastxml,pecos-ovr,pecos-xrlinear,omikuji-parabel,"
    "omikuji-bonsai,napkinxc-plt,sklearn-linearsvc"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--bench", type=Path, default=Path("../shared/bench"))
    parser.add_argument("--peers", type=Path, default=Path("peers"))
    parser.add_argument("--out", type=Path, default=Path("data/benchmarks/sets"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of our trees")
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--only", default=MODELS)
    parser.add_argument("--again", action="store_true", help="run also what --out already holds")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.sets.split(","):
        options = copy.copy(arguments)
        options.out = arguments.out / name
        prepare(arguments.data / name, options.out)
        for model in arguments.only.split(","):
            if arguments.again or not (options.out / f"{model}.json").exists():
                linear.run(model, options)
        scores = linear.evaluate(options)
        for model in arguments.only.split(","):
            seconds = json.loads((options.out / f"{model}.json").read_text())["train_seconds"]
            rows.append((name, model, seconds, scores[model]))
    table(rows)


def prepare(source: Path, out: Path) -> None:
    """``train.txt`` and ``test.txt`` in the XMC format, rows of length 1."""
    if (out / "test.txt").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    if (source / "train.txt").exists():
        for split in ("train", "test"):
            X, Y = read_xmc(source / f"{split}.txt")
            write_xmc(out / f"{split}.txt", unit_rows(X), Y)
        return
    files = {role: f"{name}.jsonl.xz" for role, name in
             (("train", "train"), ("valid", "dev"), ("test", "test"))}  # fmt: skip
    with tempfile.TemporaryDirectory() as texts:
        manifest = {"format": "jsonl", "files": files}
        found = corpus.read(source, manifest, Path(texts), corpus.PreprocessParams())
    for split in ("train", "test"):
        write_xmc(out / f"{split}.txt", found.splits[split].X, found.splits[split].Y)


def table(rows: list[tuple[str, str, float, dict[str, float]]]) -> None:
    print("| dataset | model | train s | P@1/3/5 | nDCG@5 | PSP@1/3/5 |")
    print("| --- " * 6 + "|")
    for name, model, seconds, quality in rows:
        p, psp = ("/".join(f"{quality[f'{m}@{k}']:.2f}" for k in (1, 3, 5)) for m in ("P", "PSP"))
        print(f"| {name} | {model} | {seconds:.1f} | {p} | {quality['nDCG@5']:.2f} | {psp} |")


if __name__ == "__main__":
    main()
