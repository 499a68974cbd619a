"""Whether a worker is dead, where the database's clock was ahead when it last beat, and was set right since."""

import time
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from dsopt.store.backup import living_workers
from dsopt.store.beats import Beats
from dsopt.store.heartbeat import LEASE_SECONDS
from dsopt.store.queries import other_workers
from dsopt.store.studies import Store
from dsopt.store.tables import workers
from dsopt.store.workers import beat, bury, find_dead, register


def test_a_dead_worker_that_beat_in_the_future_is_buried(storage_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another boot of its machine: nobody can see whether its process lives. The test's own clock is moved on."""
    store = Store.open(storage_url, make=True)
    ahead, living, me = (register(store.engine) for _ in range(3))
    with store.engine.begin() as connection:
        connection.execute(sa.update(workers).where(workers.c.id != me.id).values(host="another boot"))
        later = workers.c.heartbeat_at + 30 * 86400
        connection.execute(sa.update(workers).where(workers.c.id == ahead.id).values(heartbeat_at=later))
    beats, began = Beats(), time.monotonic()
    for seconds in (0.0, LEASE_SECONDS + 1):
        clock = SimpleNamespace(monotonic=lambda now=began + seconds: now)
        monkeypatch.setattr("dsopt.store.beats.time", clock)
        beat(store.engine, living, None, None)
        with store.engine.connect() as connection:
            others = other_workers(connection, me.id)
        beats.note(others)
        dead = find_dead(others, me, beats.unmoved())
        assert [one.id for one in dead] == ([ahead.id] if seconds else [])
    assert beats.is_silent(ahead.id) and not beats.is_silent(living.id)
    beat(store.engine, ahead, None, None)
    assert not bury(store.engine, dead[0])  # it lives after all
    with store.engine.connect() as connection:
        others = other_workers(connection, me.id)
    assert bury(store.engine, find_dead(others, me, {ahead.id})[0])
    store.close()


@pytest.mark.parametrize(
    ("host", "seconds", "lives"),
    [("another", 5, True), ("another", -LEASE_SECONDS - 5, False), ("another", 30 * 86400, False), (None, 86400, True)],
)
def test_who_stands_in_the_way_of_a_restore(storage_url: str, host: str | None, seconds: float, lives: bool) -> None:
    """Of this machine's own workers, their processes tell."""
    store = Store.open(storage_url, make=True)
    register(store.engine)
    values = {"heartbeat_at": workers.c.heartbeat_at + seconds, **({"host": host} if host else {})}
    with store.engine.begin() as connection:
        connection.execute(sa.update(workers).values(values))
        assert bool(living_workers(connection)) == lives
    store.close()
