"""`coattail study ...`: tables and figures of the papers, run, judged and written up here."""

from __future__ import annotations

import logging
import signal
import sys

import click

from coattail.cli.contents import CommandGroup


@click.group(cls=CommandGroup)
def study() -> None:
    """Run the papers' tables here, judge their claims."""


@study.command("list", example="coattail study list")
def list_studies() -> None:
    """List studies, how much of each is done, the verdicts."""
    from coattail.studies import study_pages

    click.echo(study_pages.listing(), nl=False)


@study.command(example="coattail study run pw-table3-bibtex --data FOLDER")
@click.argument("name")
@click.option(
    "--data",
    multiple=True,
    metavar="[ENTRY=]FOLDER",
    help="Where the dataset's files are (remembered). ENTRY of another dataset runs it on that.",
)
@click.option("--row", "rows", multiple=True, metavar="ROW", help="Only this row (repeatable).")
def run(name: str, data: tuple[str, ...], rows: tuple[str, ...]) -> None:
    """Run study NAME, or what is left of it.

    Interrupted or killed, the same command goes on. Rows run in a clone of HEAD that shares the
    project's DVC cache. The figures go to studies/NAME.json, `coattail study write` makes pages
    of them.
    """
    from coattail.studies import running, study_pages

    logging.getLogger("coattail").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        found, failures = running.run(name, data, rows)
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on from here", err=True)
        sys.exit(130)
    click.echo(study_pages.terminal(found.study), nl=False)
    for failure in failures:
        click.echo(f"error: {failure}", err=True)
    sys.exit(1 if failures else 0)


@study.command(example="coattail study show pw-table3-bibtex")
@click.argument("name")
def show(name: str) -> None:
    """Print study NAME: the paper's figures, ours, verdicts."""
    from coattail.studies import study_pages

    click.echo(study_pages.terminal(name), nl=False)


@study.command(example="coattail study write")
def write() -> None:
    """Write docs/results/studies and the summary from studies/*.json."""
    from coattail.studies import study_pages

    for path in study_pages.write():
        click.echo(f"wrote {path}")
