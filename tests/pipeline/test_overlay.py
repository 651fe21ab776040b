"""`coattail use`: overlays merge into params.yaml, keep its comments, and refuse mistakes."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from coattail.cli.main import main
from coattail.config import read_yaml
from coattail.errors import ConfigError
from coattail.pipeline import overlay

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", "params.yaml")
    shutil.copytree(ROOT / "conf", "conf")
    return tmp_path


def comments(text: str) -> list[str]:
    return [line[line.index("#") :] for line in text.splitlines() if "#" in line]


def outside_dataset(text: str) -> str:
    before, after = text.split("\ndataset:")
    return before + after[after.index("\nvectors:") :]


def test_a_dataset_replaces_the_dataset_and_leaves_everything_else_alone(project):
    before = Path("params.yaml").read_text()
    overlay.use("bibtex", None)
    after = Path("params.yaml").read_text()
    assert read_yaml("params.yaml")["dataset"]["name"] == "bibtex"
    assert outside_dataset(before) == outside_dataset(after)


def test_there_and_back_gives_the_same_bytes(project):
    before = Path("params.yaml").read_bytes()
    overlay.use("bibtex", None)
    overlay.use("demo", None)
    assert Path("params.yaml").read_bytes() == before


def test_using_what_is_used_changes_nothing(project):
    before = Path("params.yaml").read_bytes()
    assert overlay.use("demo", None) == ""
    assert Path("params.yaml").read_bytes() == before


def test_a_preset_may_take_out_the_last_variant(project):
    Path("conf/preset/mine.yaml").write_text("transfer:\n  httn: null\n")
    before = read_yaml("params.yaml")
    assert list(before["transfer"]) == ["httn"]
    overlay.use("preset/mine", None)
    assert read_yaml("params.yaml") == before | {"transfer": {}}
    assert "ensemble:  # averages of two candidates" in Path("params.yaml").read_text()


def test_a_preset_adds_variants_and_null_takes_one_out(project):
    Path("conf/preset").mkdir(exist_ok=True)
    Path("conf/preset/mine.yaml").write_text(
        "train_linear:\n"
        "  new: {model: ovr, train: features/tfidf/train, tree: flat, C: 3.0}\n"
        "  dismec-pwcb: null\n"
        "transfer: {}\n"
    )
    before = Path("params.yaml").read_text()
    overlay.use("preset/mine", None)
    section = read_yaml("params.yaml")["train_linear"]
    assert section["new"]["C"] == 3.0
    assert "dismec-pwcb" not in section
    assert "dismec" in section
    assert read_yaml("params.yaml")["transfer"] == {}
    after = Path("params.yaml").read_text()
    lost = set(comments(before)) - set(comments(after))
    assert lost == {line for line in lost if "epochs" in before.split(line)[0].splitlines()[-1]}
    assert "\n\nensemble:" in after


@pytest.mark.parametrize("name", ["linear-paper", "transformers-paper", "tail-deep"])
def test_what_variants_of_a_preset_share_is_written_out_for_each(project, name):
    # dvc exp run -S of one variant would otherwise change all that share its values.
    overlay.use(f"preset/{name}", None)
    text = Path("params.yaml").read_text()
    assert not [line for line in text.splitlines() if ": &" in line or "<<:" in line]
    found, preset = read_yaml("params.yaml"), read_yaml(f"conf/preset/{name}.yaml")
    for section, variants in preset.items():
        for variant, values in variants.items():
            assert found[section][variant] == values, variant


def test_shared_values_come_first_in_their_own_order_and_comments_stay(project):
    overlay.use("preset/linear-paper", None)
    assert "\n  dismec-pwcb:  # positives weigh (2q - 1)" in Path("params.yaml").read_text()
    keys = list(read_yaml("params.yaml")["train_linear"]["dismec-pwcb"])
    shared = ["model", "train", "tree", "C", "prune"]
    assert keys == [*shared, "weighting", "normalise", "beta"]


def test_what_fails_the_schema_is_refused_and_nothing_is_written(project):
    Path("conf/dataset/odd.yaml").write_text("dataset: {name: odd, format: jsonl, fles: {}}\n")
    before = Path("params.yaml").read_bytes()
    with pytest.raises(
        ConfigError, match=r"dataset\.fles: unknown parameter; did you mean 'files'"
    ):
        overlay.use("odd", None)
    assert Path("params.yaml").read_bytes() == before


def test_an_unknown_name_gets_a_suggestion(project):
    with pytest.raises(ConfigError, match="did you mean 'eurlex57k'"):
        overlay.use("eurlex57", None)


def test_a_folder_without_overlays_says_where_to_run(project):
    shutil.rmtree("conf")
    with pytest.raises(ConfigError, match="run from the project's root"):
        overlay.use("demo", None)


def test_the_command_shows_the_difference_and_a_dry_run_writes_nothing(project):
    before = Path("params.yaml").read_bytes()
    result = CliRunner().invoke(main, ["use", "bibtex", "--dry-run"])
    assert result.exit_code == 0
    assert "+  name: bibtex" in result.output
    assert "-  name: demo" in result.output
    assert Path("params.yaml").read_bytes() == before


def test_the_command_fails_with_a_message_not_a_traceback(project):
    result = CliRunner().invoke(main, ["use", "nothing-like-it"])
    assert result.exit_code == 1
    assert result.output.startswith("error: conf/ has no overlay")


def test_datasets_are_listed_with_their_titles(project):
    output = CliRunner().invoke(main, ["data", "list"]).output
    assert "eurlex57k" in output
    assert "Generated corpus" in output


def test_a_broken_overlay_is_named_and_params_stay_as_they_were(project):
    (project / "conf" / "preset" / "broken.yaml").write_text("rerank:\n  a:\n c: 1\n")
    before = (project / "params.yaml").read_text()
    with pytest.raises(ConfigError, match=r"broken\.yaml is not valid YAML"):
        overlay.use("preset/broken", None)
    assert (project / "params.yaml").read_text() == before
