"""`coattail data ...`: which datasets there are, how to get at them, what can go."""

from __future__ import annotations

from pathlib import Path

import click

from coattail.cli.contents import CommandGroup
from coattail.errors import DataError


@click.group(cls=CommandGroup)
def data() -> None:
    """List datasets, convert originals, clear what is left over."""


@data.command("list", example="coattail data list")
def list_datasets() -> None:
    """List the datasets and presets that `coattail use` knows."""
    from coattail.pipeline import overlay

    rows = overlay.describe()
    width = max(len(name) for name, _ in rows)
    for name, title in rows:
        click.echo(f"{name:<{width}}  {title}")


@data.command(example="coattail data convert eurlex57k-15k FOLDER NEW-FOLDER")
@click.argument("name")
@click.argument("source", metavar="FROM", type=click.Path(path_type=Path))
@click.argument("target", metavar="TO", type=click.Path(path_type=Path))
def convert(name: str, source: Path, target: Path) -> None:
    """Make the files of dataset NAME from its original.

    FROM is the folder of the original, TO a new one. The note of the entry
    (conf/dataset/NAME.yaml) says what the original is.
    Then: coattail use NAME --data TO
    """
    from coattail.data import converting

    wrong = 0
    for one in converting.convert(name, source, target):
        said = {True: "as in the entry", None: "the entry has no checksum", False: "OTHER BYTES"}
        click.echo(f"{one.path}: {said[one.right]}")
        wrong += one.right is False
    if wrong:
        raise DataError(
            f"{wrong} files in {target} are not those that conf/dataset/{name}.yaml names: another "
            "edition of the original; use them as data of your own (coattail use jsonl or xmc)"
        )


@data.command(example="coattail data clean --dry-run")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
def clean(dry_run: bool) -> None:
    """Remove results and curves of variants that params.yaml no longer has."""
    from coattail.config import read_yaml
    from coattail.pipeline.leftovers import leftovers, remove_leftovers

    removed = (leftovers if dry_run else remove_leftovers)(read_yaml("params.yaml"))
    for path in removed:
        click.echo(f"{'would remove' if dry_run else 'removed'} {path}")
    if not removed:
        click.echo("nothing to remove")
