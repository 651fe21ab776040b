"""`coattail model ...`: where a trained model comes from, and a new label for it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from coattail.cli.contents import CommandGroup


@click.group(cls=CommandGroup)
def model() -> None:
    """Ask where a trained model comes from, give it a new label."""


@model.command(example="coattail model lineage coattail-demo@champion")
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
    """Show what made MODEL, or which models something made.

    That is the commit, the data, the stages and the machines. MODEL is a registered model (name,
    name@alias or name/version), a candidate or a run id.
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


@model.command(
    "add-label",
    example="coattail model add-label httn new-label --texts texts.txt",
)
@click.argument("candidate")
@click.argument("label")
@click.option("--texts", required=True, metavar="FILE", help="One text per line, or .jsonl.")
@click.option("--to", metavar="FOLDER", help="Where to write; default: under data/added.")
def add_label(candidate: str, label: str, texts: str, to: str | None) -> None:
    """Give CANDIDATE the new LABEL from a few texts.

    It is not trained again. CANDIDATE is a transfer model (httn, imprinting), a one-vs-rest model,
    or the folder of a bundle that this command wrote. What DVC made stays as it is: the grown model
    is a folder of its own.
    """
    from coattail.serving import add_label as adding

    folder, number = adding.add_label(candidate, label, adding.read_texts(texts), to)
    click.echo(f"{folder}: {candidate} with label {label!r} (id {number}); now:")
    click.echo(f'  coattail tag --model {folder} "some text"')
