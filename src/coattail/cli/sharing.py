"""Commands for people who share results: lineage, queue, import-runs, export, open."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TextIO

import click


@click.command()
@click.argument("model", required=False)
@click.option("--commit", metavar="REV", help="Models that a commit made.")
@click.option("--data", metavar="MD5", help="Models made from data or outputs with this md5.")
@click.option("--stage", metavar="STAGE", help="Models that a stage made (address or run id).")
@click.option(
    "--checkout",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Make FOLDER the project that made MODEL, run it, compare the bytes.",
)
@click.option("--no-run", is_flag=True, help="With --checkout: only make the folder.")
@click.option("--retrain", is_flag=True, help="With --checkout: compute all, take nothing.")
@click.option("--params", is_flag=True, help="Show all params too.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def lineage(
    model: str | None,
    commit: str | None,
    data: str | None,
    stage: str | None,
    checkout: Path | None,
    no_run: bool,
    retrain: bool,
    params: bool,
    as_json: bool,
) -> None:
    """Show what made MODEL: commit, data, stages, machines; or which models something made.

    MODEL is a registered model (name, name@alias or name/version), a candidate or a run id.
    """
    from coattail.experiments import lineage as of

    if checkout and not model:
        raise click.UsageError("--checkout wants a MODEL")

    given = [value for value in (model, commit, data, stage) if value]
    if len(given) != 1:
        raise click.UsageError("name a MODEL, or give one of --commit, --data, --stage")
    if model and checkout:
        sys.exit(_rebuild(model, checkout, no_run, retrain))
    if model:
        one = of.of_model(model)
        click.echo(one.json() if as_json else of.text(one, params))
        return
    if commit:
        found = of.of_commit(commit)
    else:
        found = of.of_data(data) if data else of.of_stage(str(stage))
    if as_json:
        click.echo(f"[{','.join(one.json() for one in found)}]")
    else:
        click.echo(of.table(found) if found else "no model here was made by it")


def _rebuild(model: str, folder: Path, no_run: bool, retrain: bool) -> int:
    """Check a model's project out and run it; 1 if other bytes came out."""
    from coattail.experiments import lineage as of
    from coattail.experiments import rebuild as again
    from coattail.tracking.store import dataset_name, open_store

    store = open_store(dataset_name())
    one = of.of_model(model, store)
    for line in again.checkout(one, folder, store):
        click.echo(line)
    if no_run:
        click.echo(f"now: cd {folder} && dvc repro {one.stages[-1].address}")
        return 0
    outcomes = again.rebuild(one, folder, retrain)
    click.echo(again.text(outcomes))
    return 0 if all(each.equal for each in outcomes) else 1


@click.command()
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
    """Run many experiments, each in a clone of its own, here or on a Dask cluster."""
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
                remedy = f"dvc exp apply {title} && coattail sync"
                click.echo(f"        MLflow did not take its results; show them with: {remedy}")
    click.echo("compare them: dvc exp show --only-changed")
    sys.exit(1 if failed else 0)


@click.command("import-runs")
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
    """Take the finished runs of EXPERIMENT in another MLflow store (URI) in, for comparison."""
    from coattail.tracking import import_runs as importing
    from coattail.tracking.store import dataset_name, open_store

    rules = importing.rules(mapping)
    new, old = importing.import_runs(open_store(into or dataset_name()), uri, experiment, rules)
    click.echo(f"imported {new} runs of {experiment}" + (f"; {old} were here already" * bool(old)))


@click.command()
@click.argument("archive", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("revision", required=False)
@click.option("--without", multiple=True, metavar="PATH", help="Leave an output out: data/raw.")
def export(archive: Path, revision: str | None, without: tuple[str, ...]) -> None:
    """Write an experiment or git REVISION (else the workspace) with all its data to ARCHIVE."""
    from coattail.experiments.exchange import export as write

    logging.getLogger("coattail").setLevel(logging.INFO)  # progress
    done = write(archive, revision, without)
    click.echo(
        f"{archive}: {done.name} at {done.commit[:10]}, {done.objects} objects, "
        f"{done.runs} MLflow runs, {done.size / 2**20:.1f} MiB"
    )
    click.echo(f"open it elsewhere with: coattail open {archive.name} FOLDER")


@click.command("open")
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
def open_archive(archive: Path, folder: Path) -> None:
    """Unpack an exported ARCHIVE into FOLDER as a working project, without any remote."""
    from coattail.experiments.exchange import open_archive as unpack

    manifest = unpack(archive, folder)
    click.echo(f"{folder}: {manifest['name']} at {manifest['commit'][:10]}")
    if manifest["without"]:
        click.echo(f"left out: {', '.join(manifest['without'])}; use dvc repro --allow-missing")
    click.echo(f"now: cd {folder} && coattail leaderboard && coattail sync")


COMMANDS = (lineage, queue, import_runs, export, open_archive)
