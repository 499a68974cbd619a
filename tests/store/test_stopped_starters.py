"""A worker that somebody stopped while it started a run has the run's log open, and keeps no devices with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dsopt.launch.processes import is_stopped
from dsopt.protocol.run_dir import RunDir
from dsopt.store.lease_queries import leases_left
from dsopt.store.orphans import sweep
from dsopt.store.studies import Store
from dsopt.store.workers import leave
from tests.store.ledger import spec
from tests.store.test_leases import NONE, at, begin, orphans, slots
from tests.studies import until

STARTER = """
import signal, subprocess, sys
from dsopt.protocol.presence import be_present
with open(sys.argv[1], "ab") as log:
    be_present(log.fileno())
    if sys.argv[2] == "has started a process that hides":
        subprocess.Popen(["sleep", "60"], pass_fds=[log.fileno()])
    print("it has the lock", flush=True)
    if sys.argv[2] != "goes on":
        signal.raise_signal(signal.SIGSTOP)
    input()
"""
CASES = {
    # (what the worker does that started the run, the host of who looks) -> whether the devices come free
    ("is stopped", "boot/1"): True,
    ("is stopped", "boot/2"): False,  # in another container, whose processes are not seen
    ("has started a process that hides", "boot/1"): False,
    ("goes on", "boot/1"): False,
}


@pytest.mark.parametrize(("does", "host"), CASES)
def test_a_stopped_worker_keeps_no_devices_with_the_log_of_a_run_that_it_started(
    storage_url: str, tmp_path: Path, does: str, host: str
) -> None:
    """The devices stayed leased until it went on: the lock of the log is there for the run's processes."""
    run_dir = RunDir.create(tmp_path, "r")
    store = Store.open(storage_url, make=True)
    dead = at(store, "a", "boot/1")
    begin(dead, store.create(spec())[0], slots(2), run_dir=run_dir.path)
    leave(store.engine, dead.me)
    argv = [sys.executable, "-c", STARTER, str(run_dir.stdout), does]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as starter:
        try:
            assert starter.stdout is not None
            assert starter.stdout.readline()
            until(lambda: is_stopped(starter.pid) == (does != "goes on"))
            assert sweep(store.engine, orphans(store, at(store, "a", host), NONE)) == CASES[does, host]
            with store.engine.connect() as connection:
                assert bool(leases_left(connection)) != CASES[does, host]
        finally:
            os.killpg(starter.pid, signal.SIGKILL)
    store.close()
