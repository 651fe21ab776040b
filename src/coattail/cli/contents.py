"""How the commands are laid out: headings, an example each, former names, and what was meant."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from coattail.errors import CoattailError

FORMER = {
    "add-label": "model add-label",
    "clean": "data clean",
    "datasets": "data list",
    "export": "experiment export",
    "import-runs": "experiment import-runs",
    "lineage": "model lineage",
    "open": "experiment open",
    "queue": "experiment queue",
    "sync": "experiment sync",
}
"""Names that commands had at the top before they were grouped -> what they are called now."""


class Command(click.Command):
    """A command whose help ends with an example: one line that can be typed."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.example:
            with formatter.section("Example"):
                formatter.write(f"{'':>{formatter.current_indent}}{self.example}\n")


class CommandGroup(click.Group):
    """Commands in the order in which they were written; a misspelt one says what was meant."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.get_command(ctx, args[0]) is not None
        if not known and not args[0].startswith("-") and not ctx.resilient_parsing:
            here = str(ctx.info_name) if ctx.parent else ""
            meant = close_names(args[0], ctx.find_root().command, here)
            hint = f" Did you mean {' or '.join(f'`coattail {name}`' for name in meant)}?"
            ctx.fail(f"No such command {args[0]!r}.{hint * bool(meant)}")
        return super().resolve_command(ctx, args)


class Contents(CommandGroup):
    """The top: its commands stand under headings, and former names still lead to them.

    Our own errors are printed as one clear message instead of a traceback.
    """

    def __init__(self, *args: Any, headings: dict[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.headings = {title: names.split() for title, names in (headings or {}).items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in self.headings.values() for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.commands)
        for title, names in self.headings.items():
            with formatter.section(title):
                rows = [(name.ljust(width), in_short(self.commands[name])) for name in names]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in FORMER and not ctx.resilient_parsing:
            now = FORMER[args[0]]
            click.echo(f"note: coattail {args[0]} is now called: coattail {now}", err=True)
            args = [*now.split(), *args[1:]]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CoattailError as error:
            told = str(error)
        except Exception as error:
            told = _of_the_store(error)
            if not told:
                raise
        for line in told.split("\n"):
            click.echo(f"error: {line}", err=True)
        sys.exit(1)


def _of_the_store(error: Exception) -> str:
    """One sentence for what MLflow raises in the middle of a command; empty if it is not that."""
    if "mlflow" not in sys.modules:
        return ""
    from coattail.tracking.store import told

    return told(error)


def in_short(command: click.Command) -> str:
    """The first sentence of a command's help; under that of a group, its commands."""
    sentence = (command.help or "").split("\n\n")[0]
    if isinstance(command, click.Group):
        return f"\b\n{sentence}\n{', '.join(command.commands)}"  # \b: click keeps the lines
    return sentence


def leaves(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by the words that call it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(click.Context(command)):
        yield from leaves(command.commands[name], f"{path} {name}".strip())


def close_names(word: str, root: click.Command, here: str = "") -> list[str]:
    """At most two commands or groups, wherever they stand, whose names are like the word.

    Of namesakes (`data list`, `study list`) that of the group ``here`` is meant.
    """
    import difflib

    names = {path.split()[0]: path.split()[0] for path, _ in leaves(root)}
    paths = sorted((path for path, _ in leaves(root)), key=lambda path: path.split()[0] == here)
    names |= FORMER | {path.split()[-1]: path for path in paths}
    return [names[name] for name in difflib.get_close_matches(word, names, n=2)]
