"""The rules of the house: floors, declared dependencies and paths, README, schema."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coattail.config import read_yaml
from coattail.pipeline.candidates import RANKERS, VARIANTS
from coattail.pipeline.schema import SECTIONS, check
from tests.architecture import (
    FLOORS,
    ROOT,
    floor_name,
    imports,
    modules,
    source_dependencies,
    touched_paths,
)

PIPELINE = read_yaml(ROOT / "dvc.yaml")
STAGES = PIPELINE["stages"]
OWN_SECTION = {"download": "dataset"}
"""Stages whose section is not called like the stage."""
LAST = {"report", "publish"}
"""Stages that read all run records, so they cannot leave one."""


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


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_point_down(module):
    if module == "coattail":
        return
    own = FLOORS[floor_name(module)]
    for other in imports(modules()[module]):
        if other.startswith("coattail.") and floor_name(other) != floor_name(module):
            assert FLOORS[floor_name(other)] <= own, f"{module} imports {other} from above"


@pytest.mark.parametrize(("library", "home"), [("mlflow", "tracking"), ("torch", "deep")])
def test_only_one_package_imports(library, home):
    for name, path in modules().items():
        roots = {imported.split(".")[0] for imported in imports(path)}
        inside = name.startswith(f"coattail.{home}")
        assert library not in roots or inside, f"{name} imports {library}"


def test_kernels_import_nothing_of_ours():
    for name, path in modules().items():
        if floor_name(name) == "kernels":
            ours = {i for i in imports(path) if i.startswith("coattail")}
            assert all(i.startswith("coattail.kernels") for i in ours), name


def test_stages_import_no_other_stage():
    for path in (ROOT / "stages").glob("*.py"):
        assert not {i for i in imports(path) if i.startswith("stages.")}, path


@pytest.mark.parametrize("stage", STAGES)
def test_declared_code_is_the_code_used(stage):
    declared = sorted(p for p in paths(stage, "deps") if p.endswith(".py"))
    actual = source_dependencies(stage)
    lines = "\n".join(f"      - {path}" for path in actual)
    assert declared == actual, f"paste into dvc.yaml, stage {stage}, deps:\n{lines}"


@pytest.mark.parametrize("stage", STAGES)
def test_declared_paths_are_the_paths_touched(stage):
    declared = {
        p
        for p in paths(stage, "deps", "outs", "metrics", "plots")
        if p.startswith(("data", "metrics", "plots")) and not p.startswith("data/runs")
    }
    touched = {p for p in touched_paths(stage) if not p.startswith("data/runs")}
    # A script may hand on a whole folder (data/features) of which it declares the parts it reads;
    # repository/test_pipeline.py watches which files are really opened.
    missing = {t for t in touched if not any(_covers(d, t) or _covers(t, d) for d in declared)}
    unused = {d for d in declared if not any(_covers(d, t) or _covers(t, d) for t in touched)}
    assert not missing, f"{stage} touches but does not declare {sorted(missing)}"
    assert not unused, f"{stage} declares but does not touch {sorted(unused)}"


def _covers(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_the_shape_of_the_house(stage):
    do = definition(stage)
    assert do["desc"].endswith(".")
    section = OWN_SECTION.get(stage, stage)
    if stage in VARIANTS:
        assert STAGES[stage]["foreach"] == f"${{{stage}}}"
        assert do["cmd"] == f"python -m stages.{stage} ${{key}}"
        assert do["params"] == [f"{section}.${{key}}"]
        record = f"data/runs/{stage}@${{key}}.json"
    else:
        assert do["cmd"] == f"python -m stages.{stage}"
        assert section in do["params"]
        record = f"data/runs/{stage}.json"
    assert (record in paths(stage, "outs")) == (stage not in LAST)


def test_stages_over_all_candidates_follow_the_sections_that_define_them():
    # Otherwise a variant taken out of params.yaml would stay in the leaderboard.
    assert set(RANKERS) <= set(definition("evaluate")["params"])
    assert set(RANKERS) <= set(definition("report")["params"])
    assert set(SECTIONS) == set(definition("publish")["params"])


def test_only_the_last_stages_read_run_records():
    readers = {s for s in STAGES if any(p.startswith("data/runs") for p in paths(s, "deps"))}
    assert readers == LAST


def test_the_report_declares_what_its_page_is_made_of():
    folder = ROOT / "src" / "coattail" / "report"
    pieces = {p for p in folder.iterdir() if p.suffix in (".html", ".css", ".js", ".gz")}
    assert {str(p.relative_to(ROOT)) for p in pieces} <= paths("report", "deps")


def test_gpu_stages_declare_themselves():
    gpu = {s for s in STAGES if definition(s).get("meta", {}).get("resources", {}).get("gpu")}
    assert gpu == {"train_deep", "transfer"}
    tracked = {p for stage in STAGES for p in definition(stage)["params"]}
    assert not {"device", "threads"} & tracked, "a device in the params would split the cache"


def test_params_and_every_overlay_pass_the_schema(tmp_path, monkeypatch):
    from coattail.pipeline import overlay

    check(read_yaml(ROOT / "params.yaml"))
    monkeypatch.chdir(ROOT)
    assert overlay.available()
    for name in overlay.available():
        overlay.merge(name, None)


def test_readme_lists_the_stages_with_their_descriptions():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [f"| `{stage}` | {definition(stage)['desc']} |" for stage in STAGES]
    missing = [row for row in rows if row not in readme]
    assert not missing, "paste into README's stage table:\n" + "\n".join(rows)


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
