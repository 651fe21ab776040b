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
import time
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

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
        Contender = contenders(arguments)[arguments.child]
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


def contenders(arguments: argparse.Namespace) -> dict[str, Any]:
    import numpy as np
    import scipy.sparse as sp
    import torch
    from torch import nn

    from coattail.arrays import Ragged, best_first
    from coattail.config import parse as check
    from coattail.models.deep import batching
    from coattail.models.deep.deep_models import build
    from coattail.models.deep.deep_params import DeepParams
    from coattail.models.deep.fit_data import FitData, RunContext
    from coattail.models.deep.nets.step import Step
    from coattail.models.deep.training.fitting import build_net, start_weights

    def drawn() -> tuple[Ragged, sp.csr_matrix, np.ndarray]:
        tokens, labels, vectors = corpus(arguments)
        Y = sp.csr_matrix(labels, shape=(arguments.texts, arguments.labels))
        Y.sort_indices()
        return Ragged(*tokens), Y, vectors

    class Ours:
        """AttentionXML of this library, trained and ranking as the pipeline does it."""

        settings: ClassVar[dict[str, Any]] = {}

        def __init__(self, arguments: argparse.Namespace) -> None:
            self.arguments = arguments
            self.tokens, self.Y, self.vectors = drawn()
            fixed = {"hidden": HIDDEN, "fc": [FC], "batch": BATCH, "lr": LR, "epochs": 1}
            fixed |= {"max_tokens": MAX_TOKENS, "clip_queue": 0, "swa_from": -1}
            fixed |= {"predict_batch": PREDICT_BATCH, "model": "attentionxml"}
            self.params = check({**fixed, **self.settings}, DeepParams, "benchmark")
            self.model: Any = None

        def untrained(self) -> Any:
            net = build_net(self.params, self.arguments.labels, VOCABULARY, DIM)
            start_weights(net, self.params, self.tokens, self.Y, self.vectors)
            return net

        def first_loss(self) -> float:
            rows = np.arange(BATCH)
            batch = batching.pad(self.tokens, rows, MAX_TOKENS, "cpu")
            targets = batching.dense_targets(self.Y, rows, "cpu")
            generator = torch.Generator().manual_seed(0)
            return float(self.untrained().backward(batch, Step(targets, None, generator)))

        def train(self) -> float:
            rates: list[float] = []
            data = FitData(self.tokens, self.Y, vocabulary_size=VOCABULARY, vectors=self.vectors)
            log = lambda numbers, epoch: rates.append(numbers["texts_per_second"])  # noqa: E731
            context = RunContext(threads=self.arguments.threads, log=log)
            self.model = build(self.params).fit(data, context)
            return rates[0]

        def predict(self) -> float:
            start = time.perf_counter()
            self.model.predict(self.tokens, LISTED)
            return self.tokens.n / (time.perf_counter() - start)

    class Same(Ours):
        settings: ClassVar[dict[str, Any]] = {
            "candidates": 0,
            "label_outputs": False,
            "dropout": 0.0,
            "embedding_dropout": 0.0,
        }

    class PlainNet(nn.Module):
        """The network of the paper in the fewest lines."""

        def __init__(self, n_labels: int) -> None:
            super().__init__()
            self.words = nn.Embedding(VOCABULARY, DIM, padding_idx=0, sparse=True)
            self.lstm = nn.LSTM(DIM, HIDDEN, batch_first=True, bidirectional=True)
            self.start = nn.Parameter(torch.zeros(2, 2, HIDDEN))
            self.queries = nn.Linear(2 * HIDDEN, n_labels, bias=False)
            self.fc, self.out = nn.Linear(2 * HIDDEN, FC), nn.Linear(FC, 1)

        def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(
                self.words(ids), lengths, batch_first=True, enforce_sorted=False
            )
            h, c = (self.start[:, i].unsqueeze(1).repeat(1, len(ids), 1) for i in (0, 1))
            states = nn.utils.rnn.pad_packed_sequence(
                self.lstm(packed, (h, c))[0], batch_first=True, total_length=ids.shape[1]
            )[0]
            scores = self.queries(states).transpose(1, 2)  # (B, L, T)
            padding = torch.arange(ids.shape[1]) >= lengths.unsqueeze(1)
            weights = scores.masked_fill(padding.unsqueeze(1), float("-inf")).softmax(dim=2)
            return self.out(torch.relu(self.fc(weights @ states))).squeeze(2)

    class Plain:
        """A loop over batches in random order, and torch's own optimisers."""

        def __init__(self, arguments: argparse.Namespace) -> None:
            torch.set_num_threads(arguments.threads)
            self.tokens, self.Y, _ = drawn()
            self.net = PlainNet(arguments.labels)
            self.copy_weights(Same(arguments).untrained())
            rest = [p for name, p in self.net.named_parameters() if name != "words.weight"]
            self.optimisers = [
                torch.optim.SparseAdam([self.net.words.weight], lr=LR),
                torch.optim.Adam(rest, lr=LR),
            ]
            self.rng = np.random.default_rng(1)

        def copy_weights(self, ours: Any) -> None:
            """Start where ours starts."""
            pairs = {"ahead": "", "back": "_reverse"}
            with torch.no_grad():
                self.net.words.weight.copy_(ours.words.table.weight)
                for name, ending in pairs.items():
                    for part, tensor in getattr(ours.lstm, name).named_parameters():
                        getattr(self.net.lstm, part + ending).copy_(tensor)
                self.net.start.copy_(ours.lstm.start)
                self.net.queries.weight.copy_(ours.queries)
                for mine, layer in zip((self.net.fc, self.net.out), ours.fc.layers, strict=True):
                    mine.weight.copy_(layer.weight)
                    mine.bias.copy_(layer.bias)

        def batch(self, rows: Any) -> tuple[torch.Tensor, torch.Tensor]:
            texts = [torch.from_numpy(self.tokens.row(int(r))[:MAX_TOKENS].copy()) for r in rows]
            lengths = torch.tensor([len(text) for text in texts])
            return nn.utils.rnn.pad_sequence(texts, batch_first=True).long(), lengths

        def loss(self, rows: Any) -> torch.Tensor:
            truth = torch.from_numpy(self.Y[rows].toarray())
            logits = self.net(*self.batch(rows))
            return nn.functional.binary_cross_entropy_with_logits(logits, truth)

        def first_loss(self) -> float:
            return float(self.loss(np.arange(BATCH)).detach())

        def train(self) -> float:
            start = time.perf_counter()
            for rows in np.array_split(
                self.rng.permutation(self.tokens.n), -(-self.tokens.n // BATCH)
            ):
                for optimiser in self.optimisers:
                    optimiser.zero_grad()
                self.loss(rows).backward()
                for optimiser in self.optimisers:
                    optimiser.step()
            return self.tokens.n / (time.perf_counter() - start)

        @torch.no_grad()
        def predict(self) -> float:
            start = time.perf_counter()
            for first in range(0, self.tokens.n, PREDICT_BATCH):
                rows = np.arange(first, min(first + PREDICT_BATCH, self.tokens.n))
                scores = torch.sigmoid(self.net(*self.batch(rows)))
                best, labels = scores.topk(LISTED)
                best_first(labels.numpy(), best.numpy(), LISTED)
            return self.tokens.n / (time.perf_counter() - start)

    return {"plain": Plain, "same": Same, "candidates": Ours}


if __name__ == "__main__":
    main()
