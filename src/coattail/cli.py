"""The `coattail` command. Each command imports what it needs, so that --help is instant."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import click

from coattail import __version__
from coattail.errors import CoattailError


class _Group(click.Group):
    """Prints our own errors as one clear message instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CoattailError as error:
            for line in str(error).split("\n"):
                click.echo(f"error: {line}", err=True)
            sys.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Long-tailed extreme multi-label text classification, as one reproducible pipeline."""
    from coattail.runner import start_logging

    start_logging()
    logging.getLogger("coattail").setLevel(logging.WARNING)


@main.command()
@click.argument("name")
@click.option(
    "--data", metavar="PATH", help="Local folder or mirror address to take the files from."
)
@click.option("--dry-run", is_flag=True, help="Show the change to params.yaml, write nothing.")
def use(name: str, data: str | None, dry_run: bool) -> None:
    """Switch params.yaml to dataset (or preset) NAME and show what changes."""
    from coattail import overlay

    difference = overlay.diff(name, data) if dry_run else overlay.use(name, data)
    if not difference:
        click.echo(f"params.yaml already uses {name}; nothing changed")
        return
    for line in difference.split("\n"):
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        click.echo(click.style(line, fg=colour))
    click.echo(
        "nothing written (--dry-run)" if dry_run else "\nparams.yaml written; now: make repro"
    )


@main.command()
def datasets() -> None:
    """List the datasets and presets that `coattail use` knows."""
    from coattail import overlay

    rows = overlay.describe()
    width = max(len(name) for name, _ in rows)
    for name, title in rows:
        click.echo(f"{name:<{width}}  {title}")


@main.command()
@click.option("--close", is_flag=True, help="Mark pipeline runs that were left open as killed.")
def doctor(close: bool) -> None:
    """Check params, git, disk, locks, device and the MLflow store; say what to do."""
    from coattail import doctor as checks

    if close:
        for name in checks.close_open_parents():
            click.echo(f"closed {name}")
    marks = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "problem": ("BAD ", "red")}
    problems = 0
    for finding in checks.examine():
        mark, colour = marks[finding.level]
        problems += finding.level == "problem"
        for position, line in enumerate(finding.what.split("\n")):
            click.echo(f"{click.style(mark, fg=colour) if position == 0 else '    '}  {line}")
        if finding.remedy:
            click.echo(f"      -> {finding.remedy}")
    sys.exit(1 if problems else 0)


@main.command()
@click.option("--sort", default=None, help="Metric to sort by, e.g. psp_at_5.")
def leaderboard(sort: str | None) -> None:
    """Show head, tail and overall figures of every candidate."""
    from coattail import leaderboard as board

    board.show(Path("data/evaluation"), **({"sort": sort} if sort else {}))


@main.command()
def sync() -> None:
    """Show results that came from a cache or a colleague in this MLflow store too."""
    from coattail.workspace import sync as synchronise

    click.echo(synchronise())


@main.command()
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
def clean(dry_run: bool) -> None:
    """Remove results in data/ of variants that params.yaml no longer has."""
    from coattail.config import read_yaml
    from coattail.pipeline import FOLDERS, remove_strays

    removed = remove_strays(read_yaml("params.yaml"), *FOLDERS, dry_run=dry_run)
    for path in removed:
        click.echo(f"{'would remove' if dry_run else 'removed'} {path}")
    if not removed:
        click.echo("nothing to remove")


@main.command()
@click.argument("texts", nargs=-1)
@click.option("--candidate", help="Which candidate to ask; the best one if not given.")
@click.option("-k", default=5, show_default=True, help="Labels per text.")
def tag(texts: tuple[str, ...], candidate: str | None, k: int) -> None:
    """Tag TEXTS (or lines of standard input) with a trained candidate."""
    from coattail.serve import Tagger

    lines = list(texts) or [line.rstrip("\n") for line in sys.stdin]
    for text, found in zip(lines, Tagger.of_workspace(candidate).tag(lines, k), strict=True):
        click.echo(text if len(text) <= 90 else f"{text[:87]}...")
        for label, score in found:
            click.echo(f"  {score:6.3f}  {label}")
