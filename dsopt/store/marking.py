"""Marks a part of a study, such as with why its stage is closed: for dsopt, and for those who look at it in Optuna."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from dsopt.store import optuna_rows, queries
from dsopt.store.stored import StoredStudy
from dsopt.study.part import Part


def mark(connection: sa.Connection, study: StoredStudy, part: Part, attributes: Mapping[str, Any]) -> None:
    """Writes attributes of a part of a study that this transaction has changed."""
    queries.mark_part(connection, study.id, part, attributes)
    optuna_rows.mark_study(connection, f"{study.name}/{part}", attributes)
