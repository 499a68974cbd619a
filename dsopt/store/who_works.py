"""Who works on what, for people who look: it changes nothing, and a role that can only read may ask."""

from collections.abc import Sequence

import sqlalchemy as sa

from dsopt.store.queries import Row, now
from dsopt.store.tables import attempts, studies


def running_attempts(connection: sa.Connection) -> Sequence[Row]:
    """Every running attempt, oldest first, with its study's name and its age in seconds."""
    age = (now(connection) - attempts.c.started_at).label("running_seconds")
    kept = ("worker_id", "stage", "candidate", "round")
    query = (
        sa.select(*(attempts.c[key] for key in kept), studies.c.name.label("study"), age)
        .join(studies, studies.c.id == attempts.c.study_id)
        .where(attempts.c.state == "running")
        .order_by(attempts.c.started_at)
    )
    return connection.execute(query).mappings().all()
