"""What runs measured, as it is stored."""

from collections.abc import Sequence

import sqlalchemy as sa

from dsopt.store.tables import attempts, measurements


def details_of(engine: sa.Engine, study_id: str, names: Sequence[str]) -> dict[str, str]:
    """By name of a candidate, what its last run of the search measured, as the JSON of `metrics.json`."""
    query = (
        sa.select(attempts.c.candidate, measurements.c.details)
        .join(measurements, measurements.c.attempt_id == attempts.c.id)
        .where(attempts.c.study_id == study_id, attempts.c.round == 0, attempts.c.candidate.in_(names))
        .order_by(attempts.c.started_at)
    )
    with engine.connect() as connection:
        return {row.candidate: row.details for row in connection.execute(query)}
