"""How texts are cut into words, beside the rule of before (``\\w+`` in lower case).

    python benchmarks/tokens.py ../shared/data/{eurlex57k,debtags,reuters}

For each folder of ``*.jsonl.xz``, and for the demo corpus where none is given: how many texts are
cut otherwise than by the old rule, the differences, and CPU seconds of both rules, measured in turn
on the same texts. A difference is right only where the old rule cut a word in pieces, or took two
spellings of one word for two.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import json
import lzma
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from coattail.data.demo_corpus import DemoParams, generate
from coattail.data.text import tokenize

OLD = re.compile(r"\w+")
OPEN = {".gz": gzip.open, ".xz": lzma.open}


def old(text: str) -> list[str]:
    return OLD.findall(text.lower())


def texts_of(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.jsonl.*")):
        with OPEN[path.suffix](path, "rt", encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)["text"]


def differences(text: str) -> list[str]:
    """Pairs of what the old and the new rule make of the same place."""
    before, after = old(text), tokenize(text)
    found = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [
        f"{' '.join(before[a:b])} -> {' '.join(after[c:d])}"
        for what, a, b, c, d in found
        if what != "equal"
    ]


def seconds(rule: Callable[[str], list[str]], texts: list[str]) -> float:
    start = time.process_time()
    for text in texts:
        rule(text)
    return time.process_time() - start


def report(name: str, texts: list[str], rounds: int) -> None:
    changed = [text for text in texts if old(text) != tokenize(text)]
    special = sum(not text.isascii() for text in texts)
    print(f"{name}: {len(texts):,} texts, {special:,} beyond ASCII, {len(changed):,} cut anew")
    for difference in sorted({d for text in changed for d in differences(text)}):
        print(f"  {difference}")
    spent = np.array([(seconds(old, texts), seconds(tokenize, texts)) for _ in range(rounds)])
    before, after = spent.min(axis=0)
    print(f"  CPU seconds: {before:.2f} before, {after:.2f} now, {after / before:.3f} times")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("folders", nargs="*", type=Path, help="folders of *.jsonl.xz or .gz")
    options.add_argument("--rounds", type=int, default=5, help="times that both rules are measured")
    chosen = options.parse_args()
    for folder in chosen.folders:
        report(folder.name, list(texts_of(folder)), chosen.rounds)
    if not chosen.folders:
        with tempfile.TemporaryDirectory() as folder:
            generate(DemoParams(), Path(folder))
            report("demo", list(texts_of(Path(folder))), chosen.rounds)


if __name__ == "__main__":
    main()
