"""One home for each thing: what stands in one place is not built again in another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coattail.data import vectorizer
from tests.architecture import ROOT

OWNERS = {"data/features.py", "data/vectorizer.py"}
"""Who knows where things lie in data/features."""
COMMON = {"texts", "labels", "counts.npy", "names.txt", "stats.json", "vectors.npy", "complete"}
"""Names that other folders have, too: a model may keep counts of its own."""
INSIDE = {"tfidf", "tokens", "bands.npy", "inverse_propensity.npy", "propensity.json"}
INSIDE |= {part for name in vectorizer.FILES for part in name.split("/")}


def sources() -> list[Path]:
    return [path for top in ("src", "stages", "benchmarks") for path in (ROOT / top).rglob("*.py")]


def literals(node: ast.AST) -> set[str]:
    """The folders and files that string constants below a node name."""
    found = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
    return {part for value in found if isinstance(value, str) for part in value.split("/")}


def inside_features(source: str) -> Iterator[int]:
    """Lines where a path inside data/features is built by ``/``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            last, whole = literals(node.right), literals(node)
            below = "features" in whole or "features.folder" in ast.unparse(node.left)
            if last & INSIDE or (below and last & COMMON):
                yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        'load_csr(data / "features" / "tfidf" / split)',
        'x = features.folder / "labels" / "train"',
        'Path("data/features") / "labels" / name',
        'open(folder / f"tokens/{split}")',
        'read(out / "tfidf/words.txt")',
        'gzip.open(data / "features" / "texts" / "test.jsonl.gz")',
        'np.load(features.folder / "counts.npy")',
    ],
)
def test_a_path_built_inside_features_is_seen(line):
    assert list(inside_features(line)) == [1]


def test_a_model_may_keep_files_of_such_names():
    assert not list(inside_features('np.save(folder / "counts.npy", counts)'))


def test_only_features_and_its_vectorizer_build_paths_inside_data_features():
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sources()
        if str(path.relative_to(ROOT)).removeprefix("src/coattail/") not in OWNERS
        for line in inside_features(path.read_text(encoding="utf-8"))
    ]
    assert found == [], "ask coattail.data.features.Features instead"


def test_yaml_is_read_in_one_way_and_by_ruamel_only_where_comments_are_kept():
    found = {
        str(path.relative_to(ROOT))
        for top in ("src", "stages")
        for path in (ROOT / top).rglob("*.py")
        if re.search(r"^\s*(from|import) (ruamel|yaml)\b", path.read_text("utf-8"), re.M)
    }
    assert found == {"src/coattail/config.py", "src/coattail/pipeline/overlay.py"}


@pytest.mark.parametrize(
    ("what", "pattern", "home"),
    [
        ("the names of weightings", r'Literal\[[^\]]*"pwcb"', "src/coattail/labels/weighting.py"),
        ("colours of pictures", r'"#[0-9a-f]{6}"', "src/coattail/data/drawing.py"),
        ("the rule of tf-idf", r"np\.log\(counts", "src/coattail/data/text.py"),
    ],
)
def test_what_has_a_home_stands_nowhere_else(what, pattern, home):
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if re.search(pattern, path.read_text(encoding="utf-8"))
    }
    assert found == {home}, what
