"""Workers plan one after another, however many they are, and go on without one that keeps its turn."""

import contextlib
import threading
import time
import zlib
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from dsopt.store import turns
from dsopt.store.studies import Store
from dsopt.store.turns import Turns


@pytest.fixture
def engine(storage_url: str) -> Iterator[sa.Engine]:
    store = Store.open(storage_url, make=True)
    yield store.engine
    store.close()


def test_who_waits_longer_than_a_turn_may_last_gets_its_own(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit for the queue would make everybody plan at once as soon as there are many."""
    monkeypatch.setattr(turns, "_KEPT_SECONDS", 1.0)
    holders, most = [0], [0]

    def plan() -> None:
        with Turns(engine, "study").take():
            holders[0] += 1
            most[0] = max(most[0], holders[0])
            threading.Event().wait(0.2)
            holders[0] -= 1

    workers = [threading.Thread(target=plan) for _ in range(12)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert (holders, most) == ([0], [1])


def test_nobody_waits_for_one_that_keeps_its_turn(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a process that is frozen; when it goes on, it is not disturbed either."""
    monkeypatch.setattr(turns, "_KEPT_SECONDS", 0.5)
    taken, goes_on = threading.Event(), threading.Event()
    gone_on: list[bool] = []

    def freeze() -> None:
        with Turns(engine, "study").take():
            taken.set()
            gone_on.append(goes_on.wait(60))

    frozen = threading.Thread(target=freeze)
    frozen.start()
    assert taken.wait(60)
    mine = Turns(engine, "study")
    for _ in range(3):
        with mine.take():
            assert not gone_on
    with Turns(engine, "another study").take():
        assert not gone_on
    goes_on.set()
    frozen.join(60)
    assert gone_on == [True]
    with mine.take():
        pass


def test_a_lock_that_somebody_keeps_is_waited_for_once(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A role that may only read can take it, and the server does not end that session."""
    monkeypatch.setattr(turns, "_QUEUE_SECONDS", 2.0)
    with contextlib.closing(Store.open(postgres_url, make=True)) as store, store.engine.connect() as stranger:
        key = zlib.crc32(b"dsopt:turn-study")
        stranger.execute(sa.select(sa.cast(sa.func.pg_advisory_lock(key), sa.Text)))
        mine, began = Turns(store.engine, "study"), time.monotonic()
        for _ in range(20):
            with mine.take():
                pass
        assert 2.0 <= time.monotonic() - began < 20.0  # not two seconds each time
        assert mine._lock._is_kept
        stranger.execute(sa.select(sa.func.pg_advisory_unlock(key)))
        with mine.take():
            assert not mine._lock._is_kept
