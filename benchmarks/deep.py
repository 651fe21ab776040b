"""AttentionXML beside a plain implementation of the same network: texts per second and memory.

    python benchmarks/deep.py
    python benchmarks/deep.py --libmultilabel PYTHON  # of an environment with libmultilabel[nn]

Three contenders, each in its own process with --threads threads, take turns on the same texts, and
medians are compared. ``plain`` is the network as one writes it at first: packed LSTM, attention
of all labels on all words in one piece, batches in random order, torch's optimisers. ``same`` is
ours with the same mathematics: all labels, no dropout; that the loss of the first step is the same
is checked. ``candidates`` is ours with its defaults. LibMultiLabel's AttentionXML, where it is at
hand, is a fourth. Texts are random words; their lengths follow
those of Debian's package descriptions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

OURS, PEER = ("plain", "same", "candidates"), "libmultilabel"
VOCABULARY, LENGTHS = 20_000, (9, 22, 28, 40, 55, 85, 121, 150, 237, 400)
SHARES = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)  # of the texts, up to LENGTHS words
MAX_TOKENS, DIM, HIDDEN, FC, BATCH, LR = 256, 100, 128, 128, 32, 1e-3
PREDICT_BATCH, LISTED = 64, 5


def main() -> None:
    arguments = parse()
    if arguments.child:
        serve(arguments)
        return
    names = [*OURS, PEER] if arguments.libmultilabel else OURS
    children = {name: Child(name, arguments) for name in names}
    check_loss(children["plain"].ask("loss"), children["same"].ask("loss"))
    rates: dict[str, dict[str, list[float]]] = {
        work: {name: [] for name in names} for work in ("train", "predict")
    }
    for turn in range(arguments.turns + 1):
        for work, found in rates.items():
            for name, child in children.items():
                rate = child.ask(work)
                if turn:  # the first is for warming up
                    found[name].append(rate)
                    print(f"turn {turn}: {work:7} {name:13} {rate:7.1f} texts/s", flush=True)
    memory = {name: child.ask("memory") for name, child in children.items()}
    for child in children.values():
        child.close()
    table(arguments, rates, memory)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=512, help="texts of a turn")
    parser.add_argument("--labels", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--libmultilabel", metavar="PYTHON", help="interpreter that has it")
    parser.add_argument("--child", default="")
    return parser.parse_args()


def check_loss(plain: float, ours: float) -> None:
    print(f"loss at the first step: plain {plain:.7f}, same {ours:.7f}")
    if abs(plain - ours) > 1e-5 * plain:
        sys.exit("the two networks differ, so their speeds cannot be compared")


def table(arguments: argparse.Namespace, rates: Any, memory: dict[str, float]) -> None:
    middle = {work: {n: median(r) for n, r in found.items()} for work, found in rates.items()}
    sizes = (
        f"{arguments.labels:,} labels, batch {BATCH}, hidden {HIDDEN}, {MAX_TOKENS} words at most"
    )
    turns = f"{arguments.turns} turns of {arguments.texts} texts"
    print(f"\n{sizes}; {arguments.threads} threads, medians of {turns}")
    print("| network | training texts/s | x plain | prediction texts/s | x plain | peak MB |")
    print("| --- " * 6 + "|")
    for name in memory:
        cells = [name]
        for work in ("train", "predict"):
            rate = middle[work][name]
            cells += [f"{rate:,.0f}", f"{rate / middle[work]['plain']:.1f}"]
        print("| " + " | ".join([*cells, f"{memory[name]:,.0f}"]) + " |")


class Child:
    """A contender in its own process, which answers questions with a number."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        given = ("texts", "labels", "threads")
        options = [f"--{key}={getattr(arguments, key)}" for key in given]
        threads = str(arguments.threads)
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        python = arguments.libmultilabel if name == PEER else sys.executable
        environment = os.environ | dict.fromkeys(names, threads) | {"OMP_WAIT_POLICY": "passive"}
        self.process = subprocess.Popen(
            [python, __file__, "--child", name, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, question: str) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(question, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{self.process.args} ended with {self.process.wait()}")
        return float(json.loads(answer))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


# --- in the children


def serve(arguments: argparse.Namespace) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    if arguments.child == PEER:
        from deep_libmultilabel import LibMultiLabel as Contender
    else:
        from deep_contenders import CONTENDERS

        Contender = CONTENDERS[arguments.child]
    contender = Contender(arguments)
    for question in sys.stdin:
        match question.strip():
            case "loss":
                answer = contender.first_loss()
            case "train":
                answer = contender.train()
            case "predict":
                answer = contender.predict()
            case _:
                answer = peak()
        print(json.dumps(answer), file=answers, flush=True)


def peak() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def corpus(arguments: argparse.Namespace) -> Any:
    """Token ids (indptr, words), labels of five a text as CSR arrays, and word vectors."""
    import numpy as np

    rng = np.random.default_rng(0)
    n = arguments.texts
    lengths = np.interp(rng.random(n), SHARES, LENGTHS).astype(np.int64)
    words = np.minimum(rng.zipf(1.2, lengths.sum()) + 1, VOCABULARY - 1).astype(np.int32)
    tokens = np.concatenate([[0], np.cumsum(lengths)]), words
    columns = np.concatenate([rng.choice(arguments.labels, 5, replace=False) for _ in range(n)])
    labels = np.ones(5 * n, np.float32), columns, np.arange(0, 5 * n + 1, 5)
    return tokens, labels, rng.normal(0, 0.3, (VOCABULARY, DIM)).astype(np.float32)


if __name__ == "__main__":
    main()
