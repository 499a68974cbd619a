"""`dsopt workers`: who lives, where, and does what."""

import os
import time

import pytest
import sqlalchemy as sa

from dsopt.store.engine import connect
from dsopt.store.tables import workers
from dsopt.store.url import storage_url
from tests.conftest import Dsopt
from tests.studies import wait_until_nothing_runs, write_study


def test_where_nothing_was_ever_created_nobody_works(dsopt_at_first: Dsopt) -> None:
    assert "There is no worker on" in dsopt_at_first("workers")
    assert dsopt_at_first.json("workers") == []


def test_it_says_who_works_where_on_what_and_who_is_silent(dsopt_on: Dsopt) -> None:
    assert "There is no worker on" in dsopt_on("workers")
    assert dsopt_on.json("workers") == []
    write_study(dsopt_on.cwd)
    dsopt_on("study", "create", "study.yaml")
    assert dsopt_on.json("workers") == []
    dsopt_on.environment["SIMULATED_SECONDS"] = "300"
    process = dsopt_on.start("worker", "simulated", "--devices", "cpu:2")
    try:
        found = _wait_for_a_run(dsopt_on)
        assert (found["node"], found["pid"], found["is_silent"]) == (os.uname().nodename, process.pid, False)
        [run] = found["runs"]
        assert (run["study"], run["stage"], run["candidate"], run["round"]) == ("simulated", "reference", "baseline", 0)
        assert run["running_seconds"] >= 0
        line = dsopt_on("workers").splitlines()[1]
        assert line.split()[:2] == [os.uname().nodename, str(process.pid)]
        assert "simulated: your configuration, for " in line
        assert "silent" not in line
        assert "silent" not in dsopt_on("study", "show", "simulated")
        assert "nobody works on it" not in dsopt_on("study", "list")
        assert dsopt_on.json("study", "list")[0]["workers"] == 1
    finally:
        process.kill()
        process.communicate(timeout=60)
    wait_until_nothing_runs(dsopt_on.cwd)
    engine = connect(storage_url(dsopt_on.environment["DSOPT_STORAGE"]))
    with engine.begin() as connection:
        connection.execute(sa.update(workers).values(heartbeat_at=workers.c.heartbeat_at - 7200))
    engine.dispose()
    assert "2 h ago, silent" in dsopt_on("workers")
    shown = dsopt_on("study", "show", "simulated")
    assert "; its worker is silent" in shown
    assert "Any worker goes on from here: dsopt worker simulated" in shown
    assert "  nobody works on it: dsopt worker simulated" in dsopt_on("study", "list")
    [silent] = dsopt_on.json("workers")
    assert silent["is_silent"] is True
    assert silent["silent_seconds"] >= 7200
    assert f"Silent, not waited for: {os.uname().nodename}" in dsopt_on("worker", "--drain")
    [silent] = dsopt_on.json("workers")
    assert silent["is_draining"] is True


def _wait_for_a_run(dsopt: Dsopt) -> dict:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = dsopt.json("workers")
        if found and found[0]["runs"]:
            return found[0]
    pytest.fail("no worker has begun a run")
