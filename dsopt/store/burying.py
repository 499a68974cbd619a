"""Frees what workers held that are dead, and what runs held that nobody runs any more."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from dsopt.launch.devices import DevicePool
from dsopt.store.beats import Beats
from dsopt.store.orphans import Orphan, find_orphans, sweep
from dsopt.store.queries import Row, other_workers
from dsopt.store.workers import Registration, bury, find_dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Other workers, and runs that are over and hold devices, as one look into the database has found them."""

    others: Sequence[Row]
    orphans: Sequence[Orphan]


class Burying:
    """Looks after the dead in a worker's name, or in that of a training, which is none of the workers.

    Args:
        engine: of the database.
        pool: the devices that it is about.
    """

    def __init__(self, engine: sa.Engine, pool: DevicePool) -> None:
        self._engine, self._pool = engine, pool
        self._beats = Beats()

    def look(self, connection: sa.Connection, me: Registration) -> Seen:
        """Who else there is."""
        return Seen(others=other_workers(connection, me.id), orphans=find_orphans(connection, me, self._pool))

    def see_to(self, seen: Seen, me: Registration, *, may_bury: bool) -> bool:
        """Buries the dead among them, ends what is left of their runs, and frees their devices where they are over.

        Args:
            seen: by a look just now.
            me: who looks.
            may_bury: whether others may be taken for dead now; not just after the database was away, for all at once.

        Returns:
            Whether devices came free, or somebody was buried who may have left some.
        """
        self._beats.note(seen.others)
        found = find_dead(seen.others, me, self._beats.unmoved()) if may_bury else []
        dead = [worker for worker in found if worker.is_gone or self._beats.is_silent(worker.id)]
        for worker in dead:
            bury(self._engine, worker)
        orphans = seen.orphans
        if dead:
            with self._engine.connect() as connection:
                orphans = find_orphans(connection, me, self._pool)  # their runs are among them now
        return sweep(self._engine, orphans) or bool(dead)
