"""`dsopt db …`: the database's schema."""

import click

from dsopt.cli.options import json_option, print_json, storage_option


@click.group()
def db() -> None:
    """Create, upgrade and check the database."""


@db.command()
@storage_option
@json_option
def upgrade(storage: str | None, as_json: bool) -> None:
    """Create or upgrade Optuna's and dsopt's tables. Safe to run from several nodes at once."""
    from dsopt.api.databases import upgrade_database

    now = upgrade_database(storage=storage)
    if as_json:
        print_json({"before": now.before, "revision": now.revision, "head": now.head})
        return
    done = "is up to date" if now.before == now.revision else f"upgraded from {now.before}" if now.before else "created"
    click.echo(f"{now.storage}: {done}; revision {now.revision}.")


@db.command()
@storage_option
@json_option
def check(storage: str | None, as_json: bool) -> None:
    """Check that the database fits this version of dsopt; exit with 1 if it does not."""
    from dsopt.api.databases import check_database, database_state

    found = database_state(storage=storage)
    if as_json:
        print_json({"revision": found.revision, "head": found.head, "current": found.is_current})
    check_database(storage=storage)
    if not as_json:
        click.echo(f"{found.storage}: revision {found.revision}, which this dsopt needs.")
