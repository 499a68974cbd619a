"""Workers plan one after another, however many they are, and go on without one that keeps its turn."""

import threading
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
