"""Studies that others need: those that start from their results."""

import contextlib
import json

import sqlalchemy as sa

from dsopt.errors import DsoptError
from dsopt.store import queries


def refuse_if_needed(connection: sa.Connection, name: str) -> None:
    """Refuses to delete a study while another one starts from its results and is not finished: it would go on without.

    Raises:
        DsoptError: names that study.
    """
    for other in queries.all_studies(connection):
        if other["state"] != "finished" and name in _starts_from(other):
            raise DsoptError(
                f"study '{name}': study '{other['name']}' starts from its results (warm_start) and is not finished. "
                f"Let it finish, or delete it first: dsopt study delete {other['name']}"
            )


def _starts_from(row: queries.Row) -> list[str]:
    with contextlib.suppress(ValueError, KeyError, TypeError):  # another version's, or altered
        return [str(name) for name in json.loads(row["spec"])["warm_start"]]
    return []
