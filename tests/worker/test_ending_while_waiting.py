"""SIGTERM ends a worker soon, whatever it is waiting for."""

import contextlib
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Dsopt, start_process
from tests.outages import Server
from tests.studies import STUDY, wait_until_nothing_runs, write_study
from tests.worker.test_protocol_runs import wait_for_a_run

pytestmark = pytest.mark.slow

PLANS_FOR_GOOD = """
from dsopt.worker import asking

def plan(*_):
    print("It plans.", flush=True)
    while True:
        pass

asking.next_run = plan
from dsopt.cli.main import main
main()
"""

Waiting = Callable[[Dsopt, contextlib.ExitStack], "subprocess.Popen[str]"]


def create(dsopt: Dsopt, seconds: float = 60.0, **keys: object) -> None:
    dsopt.environment["SIMULATED_SECONDS"] = str(seconds)
    write_study(dsopt.cwd, **keys)
    dsopt("study", "create", "study.yaml")


def started(dsopt: Dsopt, devices: str = "cpu:2") -> "subprocess.Popen[str]":
    return dsopt.start("worker", "simulated", "--devices", devices)


def until_said(worker: "subprocess.Popen[str]", words: str) -> None:
    """Reads what a worker says until it says this."""
    assert worker.stdout is not None
    said = []
    for line in worker.stdout:
        said.append(line)
        if words in line:
            return
    raise AssertionError("".join(said))


@contextlib.contextmanager
def another_runs(dsopt: Dsopt) -> Iterator[None]:
    """Another worker, which runs the baseline meanwhile."""
    other = started(dsopt)
    try:
        wait_for_a_run(dsopt.cwd)
        yield
    finally:
        other.kill()
        other.communicate()


def idle(dsopt: Dsopt, opened: contextlib.ExitStack) -> "subprocess.Popen[str]":
    """Another worker runs the baseline, which everything waits for; there are devices for more."""
    create(dsopt)
    opened.enter_context(another_runs(dsopt))
    worker = started(dsopt, "cpu:6")
    until_said(worker, "Working with")
    time.sleep(2)  # nothing says that it idles
    return worker


def devices(dsopt: Dsopt, opened: contextlib.ExitStack) -> "subprocess.Popen[str]":
    """A study of another name wants the devices that are taken."""
    create(dsopt)
    opened.enter_context(another_runs(dsopt))
    create(dsopt, name="other", autotuning={**STUDY["autotuning"], "results_dir": "other"})
    worker = dsopt.start("worker", "other", "--devices", "cpu:2")
    until_said(worker, "Waiting for devices")
    return worker


def own_server(dsopt: Dsopt, opened: contextlib.ExitStack) -> Server:
    """A server that only this study is on."""
    server = Server(dsopt.cwd / "pg", dsopt.cwd)
    opened.callback(server.close)
    dsopt.environment["DSOPT_STORAGE"] = server.url
    return server


def database_down(dsopt: Dsopt, opened: contextlib.ExitStack) -> "subprocess.Popen[str]":
    """The server is stopped while a worker works."""
    server = own_server(dsopt, opened)
    create(dsopt, 0.2)
    worker = started(dsopt)
    wait_for_a_run(dsopt.cwd)
    server.stop()
    until_said(worker, "the database cannot be used now")
    return worker


def connection_silent(dsopt: Dsopt, opened: contextlib.ExitStack) -> "subprocess.Popen[str]":
    """Nothing comes from the server, and no error either."""
    server = own_server(dsopt, opened)
    create(dsopt)
    worker = started(dsopt)
    wait_for_a_run(dsopt.cwd)
    server.freezer.frozen.set()
    time.sleep(6.5)  # longer than a heartbeat: it waits for an answer now
    return worker


def database_locked(dsopt: Dsopt, opened: contextlib.ExitStack) -> "subprocess.Popen[str]":
    """Somebody keeps SQLite's lock for longer than SQLite waits."""
    create(dsopt, 0.2)
    worker = started(dsopt)
    wait_for_a_run(dsopt.cwd)
    lock(dsopt, opened)
    until_said(worker, "database is locked")
    return worker


def locked_at_first(dsopt: Dsopt, opened: contextlib.ExitStack) -> "subprocess.Popen[str]":
    """The same, before the worker has registered."""
    create(dsopt, 0.2)
    lock(dsopt, opened)
    worker = started(dsopt)
    until_said(worker, "Working with")
    return worker


def lock(dsopt: Dsopt, opened: contextlib.ExitStack) -> None:
    path = dsopt.environment["DSOPT_STORAGE"].removeprefix("sqlite:///")
    holder = opened.enter_context(contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=60)))
    holder.execute("BEGIN IMMEDIATE")


def planning(dsopt: Dsopt, _: contextlib.ExitStack) -> "subprocess.Popen[str]":
    """A plan that never ends, and lets nobody else compute meanwhile."""
    create(dsopt)
    argv = [sys.executable, "-c", PLANS_FOR_GOOD, "worker", "simulated", "--devices", "cpu:2"]
    worker = start_process(argv, dsopt.cwd, dsopt.environment)
    until_said(worker, "It plans.")
    return worker


def engine(dsopt: Dsopt, _: contextlib.ExitStack) -> "subprocess.Popen[str]":
    """A run that has not told of its engine yet."""
    create(dsopt)
    worker = started(dsopt)
    wait_for_a_run(dsopt.cwd)
    time.sleep(1)
    return worker


def attempts(dsopt: Dsopt, _: contextlib.ExitStack) -> "subprocess.Popen[str]":
    """A launcher that dies at once, again and again."""
    launcher = dsopt.cwd / "deepspeed"
    launcher.write_text(f"#!/bin/sh\necho >> {dsopt.cwd}/begun\nexit 1\n")
    launcher.chmod(0o755)
    _, options = str(STUDY["command"]).split(" ", 1)
    create(dsopt, command=f"{launcher} {options}", max_attempts=100)
    worker = started(dsopt)
    begun = dsopt.cwd / "begun"
    deadline = time.monotonic() + 120
    while not begun.exists() or len(begun.read_bytes()) < 3:
        assert time.monotonic() < deadline and worker.poll() is None
        time.sleep(0.02)
    return worker


@pytest.mark.parametrize(
    "wait",
    [idle, devices, database_down, connection_silent, database_locked, locked_at_first, planning, engine, attempts],
)
def test_sigterm_ends_a_worker_soon(wait: Waiting, tmp_path: Path, sqlite_url: str, postgres: str) -> None:
    dsopt = Dsopt(tmp_path, sqlite_url)
    with contextlib.ExitStack() as opened:
        worker = wait(dsopt, opened)
        assert worker.poll() is None
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
        seconds = time.monotonic() - began
        output, _ = worker.communicate()  # which lasts as long as its guard
        assert worker.returncode == 130, output
        if wait in (idle, devices):  # the other's run goes on
            assert "Traceback" not in output
        else:
            wait_until_nothing_runs(tmp_path)
    print(f"{wait.__name__}: {seconds:.2f} s")
    assert seconds < 4  # 2 on a quiet machine


def test_a_worker_that_begins_while_the_database_is_locked_waits_for_it(tmp_path: Path, sqlite_url: str) -> None:
    """It ended with 1: it had not registered yet."""
    dsopt = Dsopt(tmp_path, sqlite_url)
    with contextlib.ExitStack() as opened:
        worker = locked_at_first(dsopt, opened)
        until_said(worker, "the database cannot be used now: database is locked")
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0 and "is finished" in output, output
