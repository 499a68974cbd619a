"""A worker's heart, when the database is there and refuses a beat."""

import threading
import time
from collections.abc import Callable

import pytest

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.store.revision import VERSION_TABLE
from dsopt.store.studies import Store
from dsopt.worker import heart
from dsopt.worker.node_speed import NodeSpeed

REFUSE = "CREATE TRIGGER refuse BEFORE UPDATE ON dsopt_workers BEGIN SELECT RAISE(ABORT, 'no right'); END"


def heart_of(store: Store, wake: Callable[[], None]) -> heart.Heart:
    speed = NodeSpeed(store, DevicePool(kind="cpu", indices=(0,)), lambda _: None)
    return heart.Heart(store, wake, threading.Event(), speed)


def test_it_goes_on_beating(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ended with a traceback, and the worker neither worked nor ended."""
    monkeypatch.setattr(heart, "HEARTBEAT_SECONDS", 0.02)
    store = Store.open(sqlite_url, make=True)
    beating = heart_of(store, lambda: None)
    try:
        for statement, is_refused in ((REFUSE, True), ("DROP TRIGGER refuse", False)):
            with store.engine.begin() as connection:
                connection.exec_driver_sql(statement)
            deadline = time.monotonic() + 20
            while (beating.problem is not None) != is_refused:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    finally:
        beating.close()
        store.close()


def test_it_says_what_the_database_said_when_the_lease_is_over(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heart, "HEARTBEAT_SECONDS", 0.02)
    monkeypatch.setattr(heart, "LEASE_SECONDS", heart.MARGIN_SECONDS + 0.2)
    store = Store.open(sqlite_url, make=True)
    woken = threading.Event()
    beating = heart_of(store, woken.set)
    try:
        with store.engine.begin() as connection:
            connection.exec_driver_sql(REFUSE)
        assert woken.wait(20)
        assert beating.is_over
        assert "no right" in str(beating.problem)
    finally:
        beating.close()
        store.close()


def test_it_does_not_come_back_to_a_database_that_was_upgraded_meanwhile(sqlite_url: str) -> None:
    store = Store.open(sqlite_url, make=True)
    beating = heart_of(store, lambda: None)
    try:
        with store.engine.begin() as connection:
            connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
        with pytest.raises(DsoptError, match="was made by a newer dsopt"):
            beating.renew()
    finally:
        beating.close()
        store.close()


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> dict[int | str, float]:
    """By how much each of the system's clocks is ahead of what it really shows."""
    ahead: dict[int | str, float] = {}
    read, wall = time.clock_gettime, time.time
    monkeypatch.setattr(time, "clock_gettime", lambda clock: read(clock) + ahead.get(clock, 0.0))
    monkeypatch.setattr(time, "time", lambda: wall() + ahead.get("wall", 0.0))
    return ahead


def test_time_in_which_the_machine_is_suspended_counts(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, clocks: dict[int | str, float]
) -> None:
    """Others may have started its runs meanwhile. Only CLOCK_BOOTTIME goes on then."""
    monkeypatch.setattr(heart, "HEARTBEAT_SECONDS", 1e6)
    store = Store.open(sqlite_url, make=True)
    beating = heart_of(store, lambda: None)
    try:
        clocks["wall"] = clocks[time.CLOCK_REALTIME] = 1e6  # somebody has set the clock
        assert not beating.is_over
        clocks[time.CLOCK_BOOTTIME] = heart.LEASE_SECONDS
        assert beating.is_over
        assert not beating.is_buried
    finally:
        beating._closing.set()
        store.close()


def test_after_a_suspension_it_lives_on_and_buries_nobody_at_first(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, clocks: dict[int | str, float]
) -> None:
    """All workers of a machine wake at once: none may take another for dead before that one has had time to beat."""
    monkeypatch.setattr(heart, "HEARTBEAT_SECONDS", 0.02)
    store = Store.open(sqlite_url, make=True)
    beating = heart_of(store, lambda: None)
    try:
        assert beating.may_bury
        clocks[time.CLOCK_BOOTTIME] = heart.LEASE_SECONDS + 1
        deadline = time.monotonic() + 20
        while beating.may_bury or beating.is_over:  # until its next beat
            assert time.monotonic() < deadline
            time.sleep(0.01)
        beating.close()
        clocks[time.CLOCK_BOOTTIME] += heart.LEASE_SECONDS
        assert beating.may_bury
    finally:
        beating.close()
        store.close()
