"""What is known of studies without reading them."""

from collections import Counter

import sqlalchemy as sa

from dsopt.store import queries
from dsopt.store.heartbeat import SILENT_SECONDS
from dsopt.store.stored import StudyHeader
from dsopt.store.transactions import UNFINISHED


def headers_of(engine: sa.Engine) -> list[StudyHeader]:
    """All studies, oldest first, including those that only another version of dsopt can read."""
    with engine.connect() as connection:
        rows = queries.all_studies(connection)
        seen = queries.other_workers(connection, None)
    at_work = Counter(worker["study_id"] for worker in seen if worker["silent_seconds"] <= SILENT_SECONDS)
    return [
        StudyHeader(
            id=row["id"],
            name=row["name"],
            state=row["state"],
            created_at=row["created_at"],
            workers=at_work[row["id"]],
            is_left=row["state"] in UNFINISHED and row["state"] != "created" and not at_work[row["id"]],
        )
        for row in rows
    ]
