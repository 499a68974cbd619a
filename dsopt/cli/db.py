"""`dsopt db …`: the database's schema."""

import click

from dsopt.cli.options import json_option, print_json, quiet_libraries, storage_option
from dsopt.errors import DsoptError


@click.group()
def db() -> None:
    """Make, upgrade and check the database."""


@db.command()
@storage_option
def upgrade(storage: str) -> None:
    """Make or upgrade Optuna's and dsopt's tables. Safe to run from several nodes at once."""
    from dsopt.store import engine, schema

    quiet_libraries()
    connection = engine.connect(engine.storage_url(storage))
    before = schema.state(connection).revision
    after = schema.upgrade(connection)
    done = "is up to date" if before == after.revision else f"upgraded from {before or 'nothing'}"
    click.echo(f"{engine.shown(connection.url)}: {done}; revision {after.revision}.")


@db.command()
@storage_option
@json_option
def check(storage: str, as_json: bool) -> None:
    """Say whether the database is of this version of dsopt; exit code 1 when it is not."""
    from dsopt.store import engine, schema

    url = engine.storage_url(storage)
    if not engine.exists(url):
        raise DsoptError(f"--storage: {engine.shown(url)}: no such file. Make it with: dsopt db upgrade")
    connection = engine.connect(url)
    found = schema.state(connection)
    if as_json:
        print_json({"revision": found.revision, "head": found.head, "current": found.is_current})
    schema.check(connection)
    if not as_json:
        click.echo(f"{engine.shown(connection.url)}: revision {found.revision}, as this dsopt needs it.")
