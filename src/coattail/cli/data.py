"""`coattail data ...`: which datasets there are, and what of the results can go."""

from __future__ import annotations

import click

from coattail.cli.contents import Group


@click.group(cls=Group)
def data() -> None:
    """See which datasets there are, clear what is left over."""


@data.command("list", example="coattail data list")
def list_datasets() -> None:
    """List the datasets and presets that `coattail use` knows."""
    from coattail.pipeline import overlay

    rows = overlay.describe()
    width = max(len(name) for name, _ in rows)
    for name, title in rows:
        click.echo(f"{name:<{width}}  {title}")


@data.command(example="coattail data clean --dry-run")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
def clean(dry_run: bool) -> None:
    """Remove results of variants that params.yaml no longer has."""
    from coattail.config import read_yaml
    from coattail.pipeline.leftovers import leftovers, remove_leftovers

    removed = (leftovers if dry_run else remove_leftovers)(read_yaml("params.yaml"))
    for path in removed:
        click.echo(f"{'would remove' if dry_run else 'removed'} {path}")
    if not removed:
        click.echo("nothing to remove")
