"""The layout of the commands: headings, examples, former names, guesses, and who names them."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from coattail.cli.contents import FORMER, leaves
from coattail.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = dict(leaves(main))
GROUPS = {name: command for name, command in main.commands.items() if hasattr(command, "commands")}


def run(words: str, **settings):
    return CliRunner().invoke(main, words.split(), **settings)


# --- help ----------------------------------------------------------------------------------------


def test_every_command_stands_under_one_heading():
    named = [name for names in main.headings.values() for name in names]
    assert sorted(named) == sorted(main.commands)
    assert main.headings["More, by what it acts on"] == list(GROUPS)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("words", ["", *GROUPS])
def test_a_table_of_contents_fits_the_terminal_uncut(words, width):
    told = run(f"{words} --help", terminal_width=width).output
    assert max(len(line) for line in told.splitlines()) <= width
    assert "..." not in told.split("Options:")[1]
    for name in COMMANDS:
        if name.startswith(words):
            assert re.search(rf"\b{name.split()[-1]}\b", told), name


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_says_what_it_is_for_in_one_sentence(group):
    assert re.fullmatch(r"[A-Z][^.]*\.", GROUPS[group].help)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_an_example_that_click_can_parse(name):
    example = COMMANDS[name].example
    assert f"Example:\n  {example}\n" in run(f"{name} --help").output
    words = shlex.split(example)
    assert words[0] == "coattail"
    assert found(words[1:])[0] == name
    arguments = words[1 + len(name.split()) :]
    there = {"FOLDER": ".", "texts.txt": "README.md"}
    COMMANDS[name].make_context(name, [there.get(word, word) for word in arguments])


# --- former names and misspelt ones --------------------------------------------------------------


@pytest.mark.parametrize("former", FORMER)
def test_a_former_name_leads_to_its_command_and_says_so_once(former):
    assert FORMER[former] in COMMANDS
    assert former not in main.commands
    now = run(f"{FORMER[former]} --help")
    then = run(f"{former} --help")
    assert (then.stdout, then.exit_code) == (now.stdout, now.exit_code)
    note = f"note: coattail {former} is now called: coattail {FORMER[former]}\n"
    assert (then.stderr, now.stderr) == (note, "")


def test_a_former_name_takes_its_arguments_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("dataset: {name: toy}\n")
    then, now = run("clean --dry-run"), run("data clean --dry-run")
    assert (
        (then.stdout, then.exit_code) == (now.stdout, now.exit_code) == ("nothing to remove\n", 0)
    )


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("leaderbord", "`coattail leaderboard`"),
        ("lineag", "`coattail model lineage`"),
        ("data-sets", "`coattail data list`"),
        ("backup", "`coattail team backup`"),
        ("data lst", "`coattail data list`"),
        ("experimnt", "`coattail experiment`"),
    ],
)
def test_a_misspelt_command_is_told_what_was_meant(words, meant):
    said = run(words)
    assert said.exit_code == 2
    assert said.stdout == ""
    assert f"Did you mean {meant}" in said.stderr


def test_a_word_like_no_command_gets_no_guess():
    said = run("xyzzy")
    assert said.exit_code == 2
    assert "No such command 'xyzzy'.\n" in said.stderr


# --- who names them ------------------------------------------------------------------------------

NAMED = re.compile(r"(?<![\w./@-])coattail[ \t]+(?![&|;>#(])((?:'[^'\n]*'|[^`\n;|&])*)")
"""`coattail` and what stands behind it, up to the end of line, code or command."""
PROSE = re.compile(
    r"(and|as|bundle|does|has|import|is|itself|made|needs|puts|raises|reports|that|to|versions|would)"
    r"\b|$"
)
"""Words that follow the name of the project in messages without being commands."""


def found(words: list[str]) -> tuple[str, click.Command, list[str]]:
    """The command that words begin with: its name, itself, the rest."""
    command, name = main, []
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        name.append(words[0])
        command, words = command.commands[words[0]], words[1:]
    return " ".join(name), command, words


def fault(line: str, whole: bool = False) -> str | None:
    """Why a line is no command of today; None if it is one.

    A line of a message may go on in prose, so only its options are looked at. In a page the
    ``whole`` line is code, and click has to take it.
    """
    line = re.split(r"\s#\s|\s{3,}", line)[0].replace("[OPTIONS]", "")
    line = re.sub(r"\$\([^)]*\)", "SHELL", line)
    words = shlex.split(line) if whole else re.findall(r"[^\s\"']+", line)
    words = [word if word == "..." else word.rstrip(".,:)") for word in words]
    name, command, rest = found([word for word in words if word])
    if isinstance(command, click.Group) and rest and re.match("[a-z]", rest[0]):
        return f"no command {rest[0]!r} in {('coattail ' + name).strip()!r}"
    options = {option for param in command.params for option in (*param.opts, "--help", "-h")}
    options |= {"--version"} if command is main else set()
    unknown = {word.split("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)} - options
    if unknown:
        return f"{name or 'coattail'} has no {sorted(unknown)}"
    return untaken(command, rest) if whole and command in COMMANDS.values() else None


def untaken(command: click.Command, words: list[str]) -> str | None:
    """What click has against the words; an argument that is not named is not missed."""
    parser = command.make_parser(click.Context(command, help_option_names=["--help", "-h"]))
    takers = {one for param in command.params if not is_flag(param) for one in param.opts}
    words = [*words, "VALUE"] if words and words[-1] in takers else words
    try:
        _, more, _ = parser.parse_args(words)
    except click.UsageError as error:
        return error.format_message()
    return f"{command.name} does not take {more}" if more else None


def is_flag(param: click.Parameter) -> bool:
    return not isinstance(param, click.Option) or param.is_flag


def code_of(page: str) -> list[str]:
    """What a page sets as code: blocks, and spans, which a line may break."""
    blocks = re.findall(r"^```.*?^```$", page, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", rest)]
    return [block.replace("\\\n", " ") for block in blocks] + spans


def strings_of(code: str) -> list[str]:
    """The literals of a module, docstrings included; what an f-string fills in is WORD."""
    found: list[str] = []
    todo: list[ast.AST] = [ast.parse(code)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.JoinedStr):
            parts = (one.value if isinstance(one, ast.Constant) else "WORD" for one in node.values)
            found.append("".join(parts))
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        todo += ast.iter_child_nodes(node)
    return found


def texts_of(path: Path) -> list[str]:
    content = path.read_text(encoding="utf-8", errors="ignore")
    if path.suffix == ".md":
        return code_of(content)
    return strings_of(content) if path.suffix == ".py" else [content]


def places() -> list[Path]:
    """All that people read: pages, messages, comments of settings; tests name wrong ones too."""
    words = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kinds = (".md", ".py", ".yaml", ".sh", ".example", ".service", "")
    return [
        path
        for name in listed.splitlines()
        if not name.startswith(("tests/", "dvc.lock", "CHANGELOG"))
        and (path := ROOT / name).is_file()
        if path.suffix in kinds
    ]


def faults(path: Path) -> list[str]:
    named = [found[1] for text in texts_of(path) for found in NAMED.finditer(text)]
    told = {line: fault(line, path.suffix == ".md") for line in named if not PROSE.match(line)}
    return [f"coattail {line}: {why}" for line, why in told.items() if why]


def test_every_command_that_pages_messages_and_settings_name_is_one_of_today():
    wrong = [f"{path.relative_to(ROOT)}: {one}" for path in places() for one in faults(path)]
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("use jsonl --data FOLDER", None),
        ("sync", "no command 'sync'"),
        ("model lineage X --chekout", "has no ['--chekout']"),
        ("model lineage X Y", "does not take ['Y']"),
        ("model lineage --stage", None),
        ("tag 'two words' --candidate dismec", None),
        ("data", None),
        ("data purge", "no command 'purge'"),
        ("tune dismec --over C=0.1..10:log --trials 20", None),
    ],
)
def test_the_search_for_wrong_commands_finds_them(line, why):
    told = fault(line, whole=True)
    assert told is None if why is None else why in told


def test_pages_and_strings_are_read_to_the_end_of_the_command(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("See `coattail\nsync`.\n\n```\ncoattail use --nix  # no\n```\n")
    assert len(faults(page)) == 2
    module = tmp_path / "module.py"
    module.write_text('say = f"now: coattail use {folder} && coattail purge {name}"\n')
    assert len(faults(module)) == 1
