"""Workers hear of changes that others make, without asking."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from dsopt.store.studies import Store
from dsopt.store.waking import Waker
from tests.store.ledger import spec


@pytest.fixture
def stores(storage_url: str) -> Iterator[tuple[Store, Store]]:
    """A worker's connections to a database, and somebody else's."""
    both = (Store.open(storage_url, make=True), Store.open(storage_url, make=True))
    yield both
    for store in both:
        store.close()


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_until_calm(woken: threading.Event, seconds: float = 1.5) -> None:
    """Waits until nothing has woken it for longer than a look takes: what came before is told."""
    woken.clear()
    while woken.wait(seconds):
        woken.clear()


def test_it_is_woken_by_each_change_that_others_make(stores: tuple[Store, Store]) -> None:
    mine, theirs = stores
    woken = threading.Event()
    waker = Waker(mine.engine, woken.set)
    try:
        assert woken.wait(60)  # what happened before it listened is not told
        study, _ = theirs.create(spec())
        wait_until_calm(woken)
        assert theirs.stop(study, "by hand")
        assert woken.wait(60)
        wait_until_calm(woken)
        assert theirs.resume(study)
        assert woken.wait(60)
    finally:
        waker.close()


def test_a_change_that_is_taken_back_wakes_nobody(stores: tuple[Store, Store]) -> None:
    mine, theirs = stores
    study, _ = theirs.create(spec())
    woken = threading.Event()
    waker = Waker(mine.engine, woken.set)
    try:
        assert woken.wait(60)
        wait_until_calm(woken)
        with theirs.engine.connect() as connection:
            update = sa.text("UPDATE dsopt_studies SET version = version + 1 WHERE id = :id")
            assert connection.execute(update, {"id": study.id}).rowcount == 1
            connection.rollback()
        assert not woken.wait(1.5)
    finally:
        waker.close()


def test_it_looks_without_a_transaction_or_a_question_of_its_own(sqlite_url: str) -> None:
    """In SQLite, a reader in a transaction would keep the log from being emptied."""
    store = Store.open(sqlite_url, make=True)
    asked: list[str] = []
    sa.event.listen(store.engine, "before_cursor_execute", lambda *args: asked.append(args[2]))
    waker = Waker(store.engine, lambda: None)
    try:
        wait_for(lambda: len(asked) >= 5)
        assert set(asked) == {"PRAGMA data_version"}
        with store.engine.connect() as other:
            busy, *_ = other.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
        assert busy == 0
    finally:
        waker.close()
        store.close()


def test_it_goes_on_after_what_others_tell(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged file, such as: who asks it for something says so, in one line."""
    looked = threading.Event()

    def look(_: Waker) -> None:
        if looked.is_set():
            raise ValueError("the waker has gone on")
        looked.set()
        raise sa.exc.DatabaseError("PRAGMA", {}, Exception("database disk image is malformed"))

    monkeypatch.setattr(Waker, "_look", look)
    monkeypatch.setattr(Waker, "_listen", look)
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: died.append(args.exc_type))
    waker = Waker(store.engine, lambda: None)
    wait_for(lambda: bool(died))
    waker.close()
    assert died == [ValueError]


def test_it_listens_again_after_its_connection_was_cut(postgres_url: str) -> None:
    mine, theirs = Store.open(postgres_url, make=True), Store.open(postgres_url)
    study, _ = theirs.create(spec())
    woken = threading.Event()
    waker = Waker(mine.engine, woken.set)
    try:
        assert woken.wait(60)
        wait_until_calm(woken)
        end = sa.text(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query = 'LISTEN dsopt' AND datname = current_database()"
        )
        with theirs.engine.connect() as connection:
            assert connection.execute(end).scalars().all() == [True]
        assert woken.wait(60)  # it may have missed something meanwhile
        wait_until_calm(woken)
        theirs.stop(study, "by hand")
        assert woken.wait(60)
    finally:
        waker.close()
        mine.close()
        theirs.close()
