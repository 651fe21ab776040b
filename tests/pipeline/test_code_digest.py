"""What counts as the code of a stage, and what does not."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coattail.errors import CoattailError
from coattail.pipeline import code_digest

ROOT = Path(__file__).resolve().parents[2]

SOURCE = b'''"""About the module."""
import numpy as np
from coattail.arrays import TopK

SIZE = 3
"""Words below a constant."""


def f(x: int) -> int:
    """About the function."""
    # a comment
    return x + SIZE
'''


def digest(source: bytes) -> str:
    return code_digest.read(source)[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"About the module.", b"Other words."),
        (b"About the function.", b"Other words."),
        (b"Words below a constant.", b"Other words."),
        (b"    # a comment\n", b""),
        (b"return x + SIZE", b"return (\n        x + SIZE\n    )"),
    ],
)
def test_words_and_layout_leave_the_digest_alone(old, new):
    assert old in SOURCE
    assert digest(SOURCE.replace(old, new)) == digest(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"SIZE = 3", b"SIZE = 4"),
        (b"x + SIZE", b"x - SIZE"),
        (b"x: int", b"x: float"),
        (b"import TopK", b"import parts"),
    ],
)
def test_what_a_program_does_changes_the_digest(old, new):
    assert digest(SOURCE.replace(old, new)) != digest(SOURCE)


def test_the_description_of_a_parameter_is_prose_and_its_bounds_are_code():
    one, two = b"x = Field(1, ge=0, description='a')", b"x = Field(1, ge=0, description='b')"
    assert digest(one) == digest(two)
    assert digest(one) != digest(one.replace(b"ge=0", b"ge=1"))


def test_imports_are_found_at_the_top_and_inside_functions():
    found = code_digest.read(b"import a.b\ndef f():\n    from c import d\n")[1]
    assert {"a.b", "c", "c.d"} == set(found)


def test_a_file_that_is_no_python_is_named_with_its_line(tmp_path):
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(CoattailError, match=r"broken\.py, line 2: .*mend it"):
        code_digest.imports(tmp_path / "broken.py")


def test_a_stage_reaches_what_its_imports_reach_and_no_plumbing():
    names, libraries = code_digest.reached(ROOT / "stages" / "build_plt.py")
    assert {"coattail.labels", "coattail.labels.tree", "coattail.kernels.cluster"} <= names
    assert not {n for n in names if n.startswith(("coattail.tracking", "coattail.config"))}
    assert not {name for name in names if name.startswith("coattail.models")}
    assert {"numpy", "numba"} <= libraries


def test_publish_counts_what_mlflow_loads_by_name():
    names, _ = code_digest.reached(ROOT / "stages" / "publish.py")
    assert "coattail.tracking.publishing.model_code" in names
    assert "coattail.serving.tagger" in names
    assert "coattail.tracking.store" not in names


def test_assets_and_settings_of_blas_count():
    report = code_digest.text("report")
    assert "src/coattail/report/page.css " in report
    assert "stages/__init__.py " in report


def test_every_file_beside_the_programs_is_an_asset_or_has_a_reason_not_to_be():
    words = ["git", "ls-files", "src/coattail"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    others = {path for path in listed if not path.endswith((".py", *code_digest.ASSETS))}
    assert others == {"src/coattail/report/plotly-basic.LICENSE"}, "name its ending in ASSETS"


def test_what_an_editor_leaves_is_no_code():
    before = code_digest.text("report")
    folder = ROOT / "src" / "coattail" / "report"
    litter = [folder / ".page.css.swp", folder / "page.css~"]
    try:
        for path in litter:
            path.touch()
        assert code_digest.text("report") == before
    finally:
        for path in litter:
            path.unlink()


def test_modules_that_write_every_result_count_for_every_stage_that_leaves_one():
    for stage in code_digest.stages():
        leaves = "coattail.tracking" in code_digest.imports(ROOT / "stages" / f"{stage}.py")
        text = code_digest.text(stage)
        for module in ("stage_result", "outputs"):
            assert (f"pipeline/{module}.py" in text) or not leaves, (stage, module)


def test_what_numba_loads_by_name_counts():
    assert "kernels/runtime/caching.py" in code_digest.text("build_plt")


def test_the_package_itself_holds_only_its_version():
    # Its digest is in no stage: a release should not run everything again.
    tree = ast.parse((ROOT / "src" / "coattail" / "__init__.py").read_text())
    kinds = [type(node) for node in tree.body]
    assert kinds == [ast.Expr, ast.Assign]
    assert tree.body[1].targets[0].id == "__version__"


def test_a_library_of_another_version_than_the_lock_is_refused(monkeypatch):
    code_digest.check_installed({"numpy", "torch", "transformers"})
    versions = {**code_digest.locked(), "llvmlite": "0.0.1"}
    monkeypatch.setattr(code_digest, "locked", lambda: versions)
    with pytest.raises(CoattailError, match=r"llvmlite .* has 0\.0\.1.*requirements\.lock"):
        code_digest.check_installed({"numba"})


def test_libraries_count_by_the_version_in_the_lock():
    lines = code_digest.lines("train_linear")
    locked = code_digest.locked()
    assert f"numba=={locked['numba']}" in lines
    assert f"llvmlite=={locked['llvmlite']}" in lines
    assert not [line for line in lines if line.startswith(("torch==", "mlflow==", "pydantic=="))]
    assert f"torch=={locked['torch']}" in code_digest.lines("train_deep")


def test_a_library_that_nobody_has_judged_is_an_error():
    with pytest.raises(CoattailError, match="can change a result"):
        code_digest.packages({"numpy", "strange"})


def test_the_digest_is_the_same_with_and_without_what_was_remembered(tmp_path):
    code = "import sys; from coattail.pipeline import code_digest as c; "
    code += "print(c.text('rerank')); c.remember()"
    texts = []
    for _ in range(2):
        env = {"PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert texts[0] == texts[1] == code_digest.text("rerank") + "\n"
    (kept,) = (tmp_path / "coattail").glob("code-*.json")
    assert json.loads(kept.read_text())


def test_a_broken_memory_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = code_digest._place()
    place.parent.mkdir(parents=True)
    place.write_text('{"a": 1')
    code_digest._readings.cache_clear()
    assert code_digest._readings() == {}
    code_digest._readings.cache_clear()


def test_a_stage_whose_code_is_not_the_noted_one_refuses_and_names_the_file(tmp_path):
    noted = tmp_path / "rerank.txt"
    with pytest.raises(CoattailError, match=r"rerank\.txt is missing.*dvc repro code"):
        code_digest.check("rerank", tmp_path)
    noted.write_text(code_digest.text("rerank"))
    code_digest.check("rerank", tmp_path)
    line = next(one for one in code_digest.lines("rerank") if "trade_off" in one)
    noted.write_text(code_digest.text("rerank").replace(line, f"{line.split()[0]} 0123"))
    with pytest.raises(CoattailError, match=r"trade_off\.py.*dvc repro code"):
        code_digest.check("rerank", tmp_path)
    noted.write_text(code_digest.text("rerank").rstrip("\n"))  # cut off
    with pytest.raises(CoattailError, match="dvc repro code"):
        code_digest.check("rerank", tmp_path)


def test_a_stage_started_by_its_path_is_checked_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = Path(os.path.relpath(ROOT / "stages" / "rerank.py"))
    with pytest.raises(CoattailError, match=r"rerank\.txt is missing"):
        code_digest.check_script(relative)
    code_digest.check_script(tmp_path / "rerank.py")  # no stage of ours
