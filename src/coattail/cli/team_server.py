"""`coattail team ...`: start the team's server, manage its users, back it up and restore it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coattail.cli.contents import CommandGroup

if TYPE_CHECKING:
    from coattail.team.users import Role

CONFIG = click.option(
    "--config",
    default="conf/team-server.yaml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Settings of the server; secrets come from the environment.",
)


@click.group(cls=CommandGroup)
def team() -> None:
    """Start the team's MLflow server, name its users, back it up."""


@team.command(example="coattail team start --config conf/team-server.yaml")
@CONFIG
@click.option("--make-bucket", is_flag=True, help="Make the bucket of artifacts if there is none.")
def start(config: Path, make_bucket: bool) -> None:
    """Start the MLflow server of the team, in the foreground."""
    from coattail.team import server, settings

    server.start(settings.read(config), make_bucket)


@team.command(example="coattail team user ada --role writer")
@click.argument("name", required=False)
@click.option(
    "--role",
    type=click.Choice(["reader", "writer", "admin"]),
    help="What they may do; a new user is a writer if not said.",
)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--remove", is_flag=True, help="Take the user away; their runs stay.")
def user(name: str | None, role: Role | None, password_stdin: bool, remove: bool) -> None:
    """Make user NAME, or change role or password.

    Without NAME, list the users. Works with an admin's MLFLOW_TRACKING_URI,
    MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD; everybody may list the users and change
    their own password.
    """
    from coattail.team import users
    from coattail.team.client import Server

    server = Server.of_environment()
    if name is None:
        found = users.listing(server)
        for known, its_role in found:
            click.echo(f"{its_role:<8} {known}")
        if any(its_role == "unknown" for _, its_role in found):
            click.echo("only an admin sees what others may do", err=True)
        return
    if remove:
        users.remove(server, name)
        click.echo(f"removed {name}")
        return
    password = sys.stdin.readline().strip() if password_stdin else None
    made = not users.exists(server, name)
    if made and password is None:
        password = users.fresh_password()
        click.echo(f"password of {name}, shown once: {password}")
    users.put(server, name, role, password)
    changes = [role or ("writer" if made else ""), "new password" if password else ""]
    said = ", ".join(change for change in changes if change) or "nothing to change"
    click.echo(f"{'made' if made else 'changed'} {name}: {said}")


@team.command(example="coattail team bucket team-cache")
@click.argument("name")
@CONFIG
@click.option("--empty", is_flag=True, help="Remove all that is in it; asks for the name first.")
@click.option("--yes", is_flag=True, help="With --empty: do not ask.")
def bucket(name: str, config: Path, empty: bool, yes: bool) -> None:
    """Make the bucket NAME in the storage of the server.

    Keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. DVC's remote is team-cache.
    """
    from coattail.team import buckets, settings

    params = settings.read(config)
    if not empty:
        click.echo(buckets.make(params, name))
        return
    if not yes and click.prompt(f"everything in {name} will be gone; type its name") != name:
        raise click.ClickException("that was another name; nothing is removed")
    click.echo(f"removed {buckets.empty(params, name)} objects of {name}")


@team.command(example="coattail team key ada --file FOLDER/s3.json")
@click.argument("person")
@click.option("--file", "path", required=True, type=click.Path(path_type=Path), help="s3.json.")
@click.option("--bucket", default="team-cache", show_default=True, help="The only one they open.")
@click.option("--remove", is_flag=True, help="Take the keys away.")
def key(person: str, path: Path, bucket: str, remove: bool) -> None:
    """Give PERSON keys of their own to the storage.

    They are written into the file that weed reads when it starts, and shown once.
    """
    from coattail.team import buckets

    if remove:
        buckets.remove_key(path, person)
        click.echo(f"removed the keys of {person}; start weed again")
        return
    for name, value in buckets.add_key(path, person, bucket).items():
        click.echo(f"{name}={value}")
    click.echo(f"keys of {person}, shown once; they count when weed starts again", err=True)


@team.command(example="coattail team backup FOLDER")
@click.argument("folder", type=click.Path(path_type=Path))
@CONFIG
def backup(folder: Path, config: Path) -> None:
    """Save all that the server holds into a new FOLDER.

    That is runs, models, users and artifacts.
    """
    from coattail.team import backup as backups
    from coattail.team import settings

    manifest = backups.backup(settings.read(config), folder)
    click.echo(f"{folder}: {len(manifest['files'])} files; to use it: coattail team restore")


@team.command(example="coattail team restore FOLDER")
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@CONFIG
def restore(folder: Path, config: Path) -> None:
    """Bring the backup in FOLDER back.

    The databases and the bucket must be empty.
    """
    from coattail.team import backup as backups
    from coattail.team import settings

    manifest = backups.restore(settings.read(config), folder)
    click.echo(f"restored {len(manifest['files'])} files of {manifest['made']}; start the server")
