"""`coattail experiment ...`: run many, show those made elsewhere, hand one over."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TextIO

import click

from coattail.cli.contents import CommandGroup


@click.group(cls=CommandGroup)
def experiment() -> None:
    """Run many experiments, take in or hand over finished ones."""


@experiment.command(example="coattail experiment queue --on pool:2 -S train_linear.dismec.C=0.3,1")
@click.option(
    "-S", "--set", "sets", multiple=True, metavar="KEY=VALUES", help="Params; commas make a grid."
)
@click.option("--file", type=click.File(), help="One experiment per line: KEY=VALUE KEY=VALUE ...")
@click.option(
    "--on",
    default="here",
    show_default=True,
    help="Where to run: here, pool:N, or a Dask scheduler (tcp://host:8786, file:PATH).",
)
@click.option("--name", help="Call the experiments NAME-1, NAME-2, ...")
def queue(sets: tuple[str, ...], file: TextIO | None, on: str, name: str | None) -> None:
    """Run many experiments, here or on a Dask cluster.

    Each runs in a clone of its own.
    """
    from coattail.experiments import queue as queueing

    wanted = queueing.grid(sets) if sets else []
    if file is not None:
        lines = [line.split() for line in file if line.strip() and line[0] != "#"]
        wanted += [combination for line in lines for combination in queueing.grid(line)]
    if not wanted:
        raise click.UsageError("nothing to run: give -S KEY=VALUE or --file")
    click.echo(f"{len(wanted)} experiments on {on}")
    failed = 0
    for title, result, error in queueing.run_all(wanted, on, name):
        if result is None:
            failed += 1
            click.echo(f"{click.style('failed', fg='red')}  {title}: {error}", err=True)
        else:
            click.echo(f"done    {title}  ({result.seconds:.0f} s on {result.host})")
            if not result.shown:
                remedy = f"dvc exp apply {title} && coattail experiment sync"
                click.echo(f"        MLflow did not take its results; show them with: {remedy}")
    click.echo("compare them: dvc exp show --only-changed")
    sys.exit(1 if failed else 0)


@experiment.command(
    "import-runs",
    example="coattail experiment import-runs http://old-server:5000 tagging --map p1=p_at_1*100",
)
@click.argument("uri")
@click.argument("experiment")
@click.option(
    "--map",
    "mapping",
    multiple=True,
    metavar="THEIRS=OURS",
    help="Rename a metric; THEIRS=OURS*100 also scales it.",
)
@click.option("--into", help="Experiment to import into; the dataset's if not given.")
def import_runs(uri: str, experiment: str, mapping: tuple[str, ...], into: str | None) -> None:
    """Take in the runs of another MLflow store, to compare.

    Takes the finished runs of EXPERIMENT in the store at URI.
    """
    from coattail.tracking import import_runs as importing
    from coattail.tracking.store import dataset_name, open_store

    rules = importing.rules(mapping)
    new, old = importing.import_runs(open_store(into or dataset_name()), uri, experiment, rules)
    click.echo(f"imported {new} runs of {experiment}" + (f"; {old} were here already" * bool(old)))


@experiment.command(example="coattail experiment export big.tar HEAD~1")
@click.argument("archive", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("revision", required=False)
@click.option("--without", multiple=True, metavar="PATH", help="Leave an output out: data/raw.")
def export(archive: Path, revision: str | None, without: tuple[str, ...]) -> None:
    """Write a REVISION with all its data to ARCHIVE.

    REVISION is a git revision or the name of an experiment; the workspace if not given.
    """
    from coattail.experiments.exchange import export as write

    logging.getLogger("coattail").setLevel(logging.INFO)  # progress
    done = write(archive, revision, without)
    click.echo(
        f"{archive}: {done.name} at {done.commit[:10]}, {done.objects} objects, "
        f"{done.runs} MLflow runs, {done.size / 2**20:.1f} MiB"
    )
    click.echo(f"open it elsewhere with: coattail experiment open {archive.name} FOLDER")


@experiment.command("open", example="coattail experiment open big.tar project")
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
def open_archive(archive: Path, folder: Path) -> None:
    """Unpack an exported ARCHIVE into FOLDER.

    FOLDER becomes a working project that needs no remote.
    """
    from coattail.experiments.exchange import open_archive as unpack

    manifest = unpack(archive, folder)
    click.echo(f"{folder}: {manifest['name']} at {manifest['commit'][:10]}")
    if manifest["without"]:
        click.echo(f"left out: {', '.join(manifest['without'])}; use dvc repro --allow-missing")
    click.echo(f"now: cd {folder} && coattail leaderboard && coattail experiment sync")


@experiment.command(example="coattail experiment sync")
def sync() -> None:
    """Show results of a cache or a colleague in MLflow too."""
    from coattail.tracking.publishing.gather import sync as synchronise

    click.echo(synchronise())
