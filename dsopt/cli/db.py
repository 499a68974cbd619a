"""`dsopt db …`: the database's schema, and backups of it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsopt.cli.options import json_option, print_json, storage_option

if TYPE_CHECKING:
    from dsopt.api.backups import Backup


@click.group()
def db() -> None:
    """Create, upgrade, check, back up and restore the database."""


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


@db.command("backup", short_help="Copy the database to a file while workers go on.")
@click.argument("file", type=click.Path(path_type=Path))
@storage_option
@json_option
def backup_(file: Path, storage: str | None, as_json: bool) -> None:
    """Copy the database to a new FILE while workers go on (SQLite; for PostgreSQL, print the command that does it)."""
    from dsopt.api.backups import back_up

    made = back_up(file, storage=storage)
    if as_json:
        _print_backup(made)
    else:
        click.echo(f"Backed up {made.storage} to {file}: {_studies(made)}, {made.size_bytes / 1e6:.1f} MB.")


@db.command("restore")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Replace the studies that are there.")
@storage_option
@json_option
def restore_(file: Path, replace: bool, storage: str | None, as_json: bool) -> None:
    """Replace the content of the database by that of a backup. No worker may live.

    Runs that were going on when the backup was made are started again. Run directories and result files stay.
    """
    from dsopt.api.backups import restore

    done = restore(file, replace=replace, storage=storage)
    if as_json:
        _print_backup(done)
    else:
        click.echo(f"Restored {done.storage} from {file}: {_studies(done)}. Check it with: dsopt db check")


def _studies(backup: "Backup") -> str:
    count = len(backup.studies)
    return "1 study" if count == 1 else f"{count} studies"


def _print_backup(backup: "Backup") -> None:
    print_json(
        {
            "file": str(backup.file),
            "storage": backup.storage,
            "studies": list(backup.studies),
            "size_bytes": backup.size_bytes,
        }
    )
