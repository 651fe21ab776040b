"""read_xmc against scikit-learn's svmlight reader on the same rows, and its peak memory.

    python benchmarks/read_xmc.py [--megabytes 200] [--repeats 3] [--data FOLDER]

Two files: one of the size of Bibtex (the real one if --data names a folder with bibtex/train.txt)
and a generated one with tf-idf like values. The readers take turns; times are the best of the
repeats, by the clock and in CPU seconds (both use one thread), with compilation apart. Memory is
the growth of a fresh process that reads the file once (Linux).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402

from coattail.data.formats.xmc import read_xmc, write_xmc  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=int, default=200, help="size of the generated file")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--measure", nargs=2, metavar=("READER", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(memory(*options.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        warm = Path(folder) / "warm.txt"
        generate(warm, 0.01, binary=False)
        read_xmc(warm)
        print(f"compile or load from cache: {time.perf_counter() - start:.1f} s")
        bibtex = options.data / "bibtex" / "train.txt"
        if not bibtex.exists():
            bibtex = Path(folder) / "bibtex.txt"
            generate(bibtex, 2.2, binary=True)
        large = Path(folder) / "large.txt"
        start = time.perf_counter()
        generate(large, options.megabytes, binary=False)
        print(f"generate and write_xmc: {time.perf_counter() - start:.1f} s")
        for name, path in (("bibtex size", bibtex), ("large", large)):
            compare(name, path, Path(folder), options.repeats)


def generate(path: Path, megabytes: float, binary: bool) -> None:
    """Rows of about 68 features, as in Bibtex, and 2 to 3 labels, until the size is met."""
    rng = np.random.default_rng(0)
    d, n_labels, per_row = (1836, 159, 68) if binary else (100_000, 10_000, 100)
    n = max(10, int(megabytes * 1e6 / (per_row * (7 if binary else 16))))
    rows = np.repeat(np.arange(n), per_row)
    # Squared uniforms: a few features are common, most are rare, as in text.
    columns = (rng.random(n * per_row) ** 2 * d).astype(np.int32)
    X = sp.csr_matrix((np.ones(n * per_row, np.float32), (rows, columns)), shape=(n, d))
    X.data = np.ones_like(X.data) if binary else rng.random(X.nnz, np.float32) ** 2
    Y = sp.csr_matrix(
        (
            np.ones(3 * n, np.float32),
            (np.repeat(np.arange(n), 3), rng.integers(0, n_labels, 3 * n)),
        ),
        shape=(n, n_labels),
    )
    write_xmc(path, X, Y)


def compare(name: str, path: Path, folder: Path, repeats: int) -> None:
    bare = folder / "bare.svm"  # scikit-learn does not know the header line
    with open(path, "rb") as source, open(bare, "wb") as target:
        source.readline()
        while chunk := source.read(1 << 24):
            target.write(chunk)
    size = path.stat().st_size / 1e6
    sklearn_read(bare)  # its import is no part of the race
    ours, theirs = race([lambda: read_xmc(path), lambda: sklearn_read(bare)], repeats)
    print(f"\n{name}: {size:.1f} MB")
    for reader, (clock, cpu) in (("coattail", ours), ("scikit-learn", theirs)):
        print(f"  {reader:13} {clock:8.3f} s  {size / clock:7.1f} MB/s  {cpu:8.3f} s CPU")
    print(f"  ratio         {theirs[0] / ours[0]:8.1f} x{theirs[1] / ours[1]:22.1f} x")
    for reader, file in (("coattail", path), ("scikit-learn", bare)):
        command = [sys.executable, __file__, "--measure", reader, str(file)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        print(
            f"  peak memory, {reader}: {found['growth']:.0f} MB above start, "
            f"result {found['result']:.0f} MB"
        )


def race(readers: list[Callable[[], object]], repeats: int) -> list[tuple[float, float]]:
    """Best clock and CPU seconds of every reader; they take turns, so that load hits all alike."""
    found: list[list[tuple[float, float]]] = [[] for _ in readers]
    for _ in range(repeats):
        for times, read in zip(found, readers, strict=True):
            clock, cpu = time.perf_counter(), time.process_time()
            read()
            times.append((time.perf_counter() - clock, time.process_time() - cpu))
    return [(min(t[0] for t in times), min(t[1] for t in times)) for times in found]


def sklearn_read(path: Path) -> tuple[sp.csr_matrix, list[tuple[float, ...]]]:
    from sklearn.datasets import load_svmlight_file

    found: tuple[sp.csr_matrix, list[tuple[float, ...]]] = load_svmlight_file(
        str(path), dtype=np.float32, multilabel=True, zero_based=True
    )
    return found


def memory(reader: str, path: str) -> dict[str, float]:
    """Megabytes this process grows by while it reads, and megabytes of the arrays it gets."""
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.txt"
        write_xmc(small, sp.identity(3, np.float32, "csr"), sp.identity(3, np.float32, "csr"))
        read_xmc(small)  # load the compiled code before the measurement starts
    if reader == "scikit-learn":
        import sklearn.datasets  # noqa: F401
    before = peak()
    X, Y = read_xmc(path) if reader == "coattail" else sklearn_read(Path(path))
    growth = peak() - before
    matrices = [M for M in (X, Y) if sp.issparse(M)]
    result = sum(M.data.nbytes + M.indices.nbytes + M.indptr.nbytes for M in matrices)
    return {"growth": growth, "result": result / 2**20}


def peak() -> float:
    """Most megabytes of memory this process ever had, by the kernel's word."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
