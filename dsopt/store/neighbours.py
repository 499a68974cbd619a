"""Which attempts went on beside each other on a node, told from what each of them leased and when."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from dsopt.store.queries import Row
from dsopt.store.tables import attempts, studies


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A run of any study that went on beside another one: the study's name, what ran, and on which node."""

    study: str
    candidate: str
    node: str


def neighbours(connection: sa.Connection, study_id: str) -> Mapping[str, Sequence[Neighbour]]:
    """What ran beside each attempt of a study on the same nodes, by its id, as far as this database knows.

    Attempts of deleted studies are not known any more, nor the devices of those that an older version began.
    """
    times = (sa.func.min(attempts.c.started_at), sa.func.max(attempts.c.finished_at))
    running = sa.func.count() - sa.func.count(attempts.c.finished_at)
    first, last, goes_on = connection.execute(sa.select(*times, running).where(attempts.c.study_id == study_id)).one()
    if first is None:
        return {}
    kept = (attempts.c.id, attempts.c.study_id, attempts.c.candidate, attempts.c.devices, attempts.c.started_at)
    query = (
        sa.select(*kept, attempts.c.finished_at, studies.c.name)
        .join(studies, studies.c.id == attempts.c.study_id)
        .where(attempts.c.devices.is_not(None))
        .where(sa.or_(attempts.c.finished_at.is_(None), attempts.c.finished_at >= first))
        .where(sa.true() if goes_on else attempts.c.started_at <= last)
        .order_by(attempts.c.started_at, attempts.c.id)
    )
    rows = connection.execute(query).mappings().all()
    going: dict[str, list[Row]] = {}
    found: dict[str, list[Neighbour]] = {}

    def note(one: Row, other: Row, node: str) -> None:
        if one["study_id"] == study_id:
            met = Neighbour(study=other["name"], candidate=other["candidate"], node=node)
            found.setdefault(one["id"], []).append(met)

    for row in rows:
        for node in json.loads(row["devices"]):
            still = [o for o in going.get(node, ()) if o["finished_at"] is None or o["finished_at"] > row["started_at"]]
            for other in still:
                note(row, other, node)
                note(other, row, node)
            going[node] = [*still, row]
    return found
