"""A worker that was stopped while it held an SQLite database's lock, and those that wait for it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dsopt.store import engine as engines
from dsopt.store.frozen import end_frozen_holder
from dsopt.store.studies import Store
from dsopt.store.transactions import writing
from dsopt.worker import patience
from dsopt.worker.happenings import Happening, WorkerPaused, WorkerWentOn

HOLDER = """
import sys, time
import sqlalchemy as sa
from dsopt.store.studies import Store
from dsopt.store.transactions import writing
from dsopt.store.workers import register

store = Store.open(sys.argv[1])
silent = sys.argv[2]
if silent:
    register(store.engine)
    with writing(store.engine) as connection:
        connection.execute(sa.text(f"UPDATE dsopt_workers SET heartbeat_at = heartbeat_at - {silent}"))
with writing(store.engine) as connection:
    print("holds", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def store(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A storage that does not wait for locks."""
    monkeypatch.setattr(engines, "_SQLITE_BUSY_SECONDS", 0.1)
    opened = Store.open(sqlite_url, make=True)
    yield opened
    opened.close()


@pytest.fixture
def hold(store: Store) -> Iterator:
    """Starts a process that holds the lock; a worker is given the seconds for which it has been silent."""
    started: list[subprocess.Popen[str]] = []

    def start(silent: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", HOLDER, str(store.engine.url), silent]
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        assert started[0].stdout is not None
        assert started[0].stdout.readline() == "holds\n"
        return started[0]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system does not list its locks")
def test_a_stopped_worker_that_holds_the_lock_is_ended_and_others_go_on(
    store: Store, hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "LEASE_SECONDS", 0.5)
    holder = hold("100")
    stop(holder)
    told: list[Happening] = []
    ask = patience.Patience(threading.Event(), told.append, lambda: end_frozen_holder(store.engine))

    def write() -> None:
        with writing(store.engine):
            pass

    ask(write)
    assert holder.wait(timeout=10) == -signal.SIGKILL
    [waits, ended, went_on] = told
    assert isinstance(waits, WorkerPaused) and waits.why.endswith("database is locked")
    assert isinstance(ended, WorkerPaused) and f"process {holder.pid}, another worker, was stopped" in ended.why
    assert isinstance(went_on, WorkerWentOn)


@pytest.mark.parametrize(
    ("silent", "is_stopped"),
    [("", True), ("30", True), ("100", False)],
    ids=["no worker", "a worker whose lease is not over", "a worker that is only slow"],
)
def test_nobody_else_is_ended(store: Store, hold, silent: str, is_stopped: bool) -> None:
    holder = hold(silent)
    if is_stopped:
        stop(holder)
    assert end_frozen_holder(store.engine) is None
    assert psutil.Process(holder.pid).is_running()
    os.kill(holder.pid, 0)


def test_a_free_database_has_no_holder(store: Store) -> None:
    assert end_frozen_holder(store.engine) is None
