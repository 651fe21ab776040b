"""The rules of the house: layers of rooms, declared dependencies and paths, README, schema."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coattail.config import read_yaml
from coattail.pipeline import code_digest
from coattail.pipeline.registry import CHOOSING, RANKERS, VARIANTS, built_in
from coattail.pipeline.schema import SECTIONS, check
from coattail.pipeline.stage_result import LATE
from tests.architecture import ROOT, private_imports, touched_paths

PIPELINE = read_yaml(ROOT / "dvc.yaml")
STAGES = PIPELINE["stages"]
OWN_SECTION = {"download": "dataset"}
"""Stages whose section is not called like the stage."""
LAST = {"report", "publish"}
"""Stages that read the results of all others, so they leave none."""
LOOKS = {"candidates": {"data/models", "data/ranked"}}
"""Folders of which the library removes leftovers; the script need not name them."""
NO_RUN = {"code", "plugins", "take_in", "candidates"}
"""Stages that keep the books or only look: no result, no run in MLflow."""


def definition(stage: str) -> dict:
    return STAGES[stage].get("do", STAGES[stage])


def paths(stage: str, *kinds: str) -> set[str]:
    found = set()
    for kind in kinds:
        for entry in definition(stage).get(kind, []):
            found |= set(entry) if isinstance(entry, dict) else {entry}
    return found


def test_every_stage_of_the_mission_is_there():
    mission = "download preprocess build_plt train_linear train_deep augment_tails transfer rerank"
    assert set(mission.split()) | {"evaluate", "publish"} <= set(STAGES)


def test_imports_keep_the_contracts_of_the_rooms():
    # The contracts stand in pyproject.toml; `lint-imports` is a part of `make check`, too.
    words = [Path(sys.executable).parent / "lint-imports", "--no-cache"]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("data", "def f():\n    from coattail.models.linear import ovr"),
        ("kernels", "from coattail.arrays import TopK"),
        ("serving", "import mlflow"),
        ("evaluation", "def f():\n    import torch"),
        ("models/deep/nets", "from coattail.models.deep.training import loop"),
        ("report", "from coattail.cli import main"),
        ("", "from coattail import cli"),
    ],
)
def test_an_import_against_a_contract_is_found(room, line, tmp_path):
    for name in ("src", "stages", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    (tmp_path / "src" / "coattail" / room / "planted.py").write_text(f"{line}\n")
    words = [Path(sys.executable).parent / "lint-imports", "--no-cache"]
    env = os.environ | {"PYTHONPATH": f"{tmp_path / 'src'}{os.pathsep}{tmp_path}"}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    assert "planted" in done.stdout


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("Only models.deep imports torch", {"coattail.models.deep"}),
        ("Only tracking imports mlflow", {"coattail.tracking"}),
    ],
)
def test_a_library_of_one_room_is_forbidden_in_all_others(name, allowed):
    # Layers must name every room (exhaustive), these contracts need not: a new room could slip by.
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [one for one in settings["contracts"] if one["name"] == name]
    source = ROOT / "src" / "coattail"
    everything = {"stages"} | {f"coattail.{room.stem}" for room in source.glob("[a-z]*")}
    if "coattail.models.deep" in allowed:
        everything -= {"coattail.models"}
        rooms = (source / "models").glob("[a-z]*")
        everything |= {f"coattail.models.{room.stem}" for room in rooms}
    assert set(contract["source_modules"]) == everything - allowed


def test_no_room_takes_private_names_of_another():
    for path in [*code_digest.modules().values(), *(ROOT / "stages").glob("*.py")]:
        room = ".".join(path.parent.relative_to(ROOT).parts).removeprefix("src.")
        assert not private_imports(path.read_text(encoding="utf-8"), room), path


def test_a_private_name_of_another_room_is_found():
    source = """
from coattail.labels import tree, frequency as counts
from coattail.models.linear.ovr import _Block, Ovr
def f():
    return tree._cut(counts._bands), Ovr._fit, tree.__name__
"""
    taken = {"tree._cut", "counts._bands", "Ovr._fit", "coattail.models.linear.ovr._Block"}
    assert set(private_imports(source, "coattail.models.deep")) == taken
    assert set(private_imports(source, "coattail.models")) == taken
    assert set(private_imports(source, "coattail.models.linear")) == {"tree._cut", "counts._bands"}
    assert set(private_imports(source, "coattail.labels")) == {
        "coattail.models.linear.ovr._Block",
        "Ovr._fit",
    }


def test_the_folders_of_tests_are_the_rooms():
    tests = {
        path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")
    }
    source = ROOT / "src" / "coattail"
    rooms = {path.parent.relative_to(source) for path in source.rglob("__init__.py")}
    assert tests - rooms == {Path("repository")}, "tests of the project as a whole"
    inside = {room for room in rooms if len(room.parts) > 1 or room == Path("models")}
    missing = rooms - inside - tests
    assert not missing, f"nothing tests {missing}"


def test_every_room_says_what_it_is_for_and_names_its_face():
    for path in (ROOT / "src" / "coattail").rglob("__init__.py"):
        words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert words, path
        if path.parent.name != "coattail":
            assert "Face:" in words, f"{path} does not name what others use of it"
            face = words.partition("Face:")[2]
            for name in re.findall(r"`(\w+)", face):
                there = [path.parent / name, path.parent / f"{name}.py"]
                here = f"def {name}(" in path.read_text(encoding="utf-8")
                assert here or any(one.exists() for one in there), f"{path}: {name}"


def test_no_two_modules_and_no_two_classes_have_one_name():
    stems = [path.stem for path in code_digest.modules().values() if path.stem != "__init__"]
    assert not {stem for stem in stems if stems.count(stem) > 1}
    classes = [
        node.name
        for path in code_digest.modules().values()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert not {name for name in classes if classes.count(name) > 1}


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "code"])
def test_every_stage_depends_on_the_digest_of_its_code(stage):
    assert f"data/code/{stage}.txt" in paths(stage, "deps")
    named = {path for path in paths(stage, "deps") if path.startswith(("src", "stages"))}
    assert not named, f"{stage} names {named}: its digest has them"


@pytest.mark.parametrize("stage", CHOOSING)
def test_a_candidate_depends_on_the_digest_of_its_model(stage):
    assert "data/code/models/${item.model}.txt" in paths(stage, "deps")


@pytest.mark.parametrize("stage", ["report", "publish"])
def test_who_loads_all_models_depends_on_the_digests_of_all(stage):
    assert "data/code/models" in paths(stage, "deps")


def test_the_stage_code_writes_a_digest_for_every_other_stage():
    assert paths("code", "deps") == {"src", "stages", "requirements.lock"}
    digests = {f"data/code/{s}.txt" for s in STAGES if s != "code"}
    digests |= {f"data/code/models/{kind.name}.txt" for kind in built_in()}
    assert paths("code", "outs") == digests
    assert {s for s in STAGES if s != "code"} == set(code_digest.stages())


@pytest.mark.parametrize("stage", STAGES)
def test_declared_paths_are_the_paths_touched(stage):
    # The library reads and writes results of stages and digests of code, no script names them.
    aside = ("data/runs", "data/code", "data/evaluate.json")
    declared = {
        p
        for p in paths(stage, "deps", "outs", "metrics", "plots")
        if p.startswith(("data", "metrics", "plots")) and not p.startswith(aside)
    }
    touched = {p for p in touched_paths(stage) if not p.startswith(aside)}
    # A script may hand on a whole folder (data/features) of which it declares the parts it reads;
    # repository/test_pipeline.py watches which files are really opened.
    missing = {t for t in touched if not any(_covers(d, t) or _covers(t, d) for d in declared)}
    unused = {d for d in declared if not any(_covers(d, t) or _covers(t, d) for t in touched)}
    unused -= LOOKS.get(stage, set())
    assert not missing, f"{stage} touches but does not declare {sorted(missing)}"
    assert not unused, f"{stage} declares but does not touch {sorted(unused)}"


def _covers(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_the_shape_of_the_house(stage):
    do = definition(stage)
    assert do["desc"].endswith(".")
    if stage in NO_RUN:
        key = " ${key}" if "foreach" in STAGES[stage] else ""
        assert do["cmd"] == f"python -m stages.{stage}{key}"
        return
    section = OWN_SECTION.get(stage, stage)
    if stage in VARIANTS:
        assert STAGES[stage]["foreach"] == f"${{{stage}}}"
        assert do["cmd"] == f"python -m stages.{stage} ${{key}}"
        assert do["params"] == ["processor", f"{section}.${{key}}"]
        record = f"data/runs/{stage}@${{key}}.json"
    else:
        assert do["cmd"] == f"python -m stages.{stage}"
        assert section in do["params"]
        record = LATE.get(stage, f"data/runs/{stage}.json")
    assert (str(record) in paths(stage, "outs")) == (stage not in LAST)


def test_stages_over_all_candidates_follow_the_sections_that_define_them():
    assert set(definition("code")["params"]) == {"plugins", *CHOOSING}
    # Otherwise a variant taken out of params.yaml would stay in the leaderboard.
    assert set(definition("candidates")["params"]) == set(VARIANTS)
    assert "data/candidates.json" in paths("evaluate", "deps")
    assert set(RANKERS) <= set(definition("report")["params"])
    # Where the data were taken from is of this machine; what they are is in `dataset` and dvc.lock.
    # What plugins are stands in the digests of their models.
    assert set(SECTIONS) - {"take_in", "plugins"} == set(definition("publish")["params"])


def test_only_stages_at_the_end_read_the_results_of_others():
    readers = {s for s in STAGES if any(p.startswith("data/runs") for p in paths(s, "deps"))}
    assert readers == LAST | {"candidates"}


def test_every_stage_that_computes_depends_on_the_processor_that_is_wanted():
    bookkeeping = {*NO_RUN, "publish"}
    wanted = {s for s in STAGES if "processor" in definition(s).get("params", [])}
    assert wanted == set(STAGES) - bookkeeping


def test_gpu_stages_declare_themselves():
    gpu = {s for s in STAGES if definition(s).get("meta", {}).get("resources", {}).get("gpu")}
    assert gpu == {"train_deep", "transfer"}
    tracked = {p for stage in STAGES for p in definition(stage).get("params", [])}
    assert not {"device", "threads"} & tracked, "a device in the params would split the cache"


def test_params_and_every_overlay_pass_the_schema(tmp_path, monkeypatch):
    from coattail.pipeline import overlay

    check(read_yaml(ROOT / "params.yaml"))
    monkeypatch.chdir(ROOT)
    assert overlay.available()
    for name in overlay.available():
        own = None
        if name in ("jsonl", "csv", "pairs", "xmc"):
            own = str(own_folder(tmp_path / f"own-{name}", name))
        overlay.merge(name, own)


def own_folder(folder: Path, format: str) -> Path:
    """The smallest dataset of a format."""
    files = {
        "jsonl": {"train.jsonl": '{"text": "a", "labels": []}\n'},
        "csv": {"train.csv": "text,labels\na,b\n"},
        "pairs": {"train.txt": "a\n", "train.labels.txt": "b\n"},
        "xmc": {"train.txt": "1 2 2\n0 1:1\n"},
    }
    folder.mkdir()
    for name, content in files[format].items():
        (folder / name).write_text(content)
        (folder / name.replace("train", "test")).write_text(content)
    return folder


def test_help_imports_neither_mlflow_nor_torch():
    code = (
        "import sys; from coattail.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'mlflow', 'torch', 'numba', 'scipy', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nothing_of_this_machine_or_of_a_registry_is_in_the_project():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    # Written in pieces so that this file does not find itself.
    forbidden = ["pypi" + ".org", "python" + "hosted", "/" + "work/", "/" + "root/"]
    for name in listed.stdout.splitlines():
        path = Path(ROOT / name)
        if path.is_file() and path.stat().st_size < 1_000_000:
            text = path.read_text(encoding="utf-8", errors="ignore")
            assert not [word for word in forbidden if word in text], name


def test_the_page_about_the_architecture_is_made_from_the_code_of_today():
    words = [sys.executable, "-c", "import architecture as a; t = a.PAGE.read_text();"]
    words[-1] += "raise SystemExit('run: python scripts/architecture.py' if a.page(t) != t else 0)"
    done = subprocess.run(words, cwd=ROOT / "scripts", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
