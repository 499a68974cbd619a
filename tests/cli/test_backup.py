"""`dsopt db backup` and `restore`: a copy while workers work, and nothing lost by bringing it back."""

import os
import re
import shlex
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsopt.store import backup
from tests.conftest import Dsopt
from tests.postgres import program
from tests.studies import check_nothing_lost_nothing_doubled, wait_until_nothing_runs, write_study


def worker_with_a_long_run(dsopt: Dsopt) -> subprocess.Popen[str]:
    write_study(dsopt.cwd, ds_config={"train_micro_batch_size_per_gpu": [4], "zero_optimization": {"stage": [0]}})
    dsopt("study", "create", "study.yaml")
    dsopt.environment["SIMULATED_SECONDS"] = "300"
    process = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    deadline = time.monotonic() + 120
    while not any(worker["runs"] for worker in dsopt.json("workers")):
        assert time.monotonic() < deadline
    return process


@pytest.mark.slow
def test_a_backup_made_beside_a_worker_brings_the_study_back(dsopt: Dsopt) -> None:
    process = worker_with_a_long_run(dsopt)
    try:
        assert ": 1 study, " in dsopt("db", "backup", "copy.db")
        assert sorted(path.name for path in dsopt.cwd.glob("*copy*")) == ["copy.db"]
        assert (dsopt.cwd / "copy.db").stat().st_mode & 0o077 == 0
        assert "copy.db: exists" in dsopt("db", "backup", "copy.db", code=1)
        refused = dsopt("db", "restore", "copy.db", "--replace", code=1)
        assert f"workers are at work: {os.uname().nodename} (process {process.pid})" in refused
        process.send_signal(signal.SIGSTOP)  # it may wake up and write
        _age_heartbeats(dsopt.cwd / "storage" / "dsopt.db")
        assert "workers are at work" in dsopt("db", "restore", "copy.db", "--replace", code=1)
    finally:
        process.kill()
        process.communicate(timeout=60)
    wait_until_nothing_runs(dsopt.cwd)
    assert "would be lost: simulated. To replace them, add --replace" in dsopt("db", "restore", "copy.db", code=1)
    dsopt("study", "stop", "simulated")
    dsopt("study", "delete", "simulated", "--yes")
    write_study(dsopt.cwd, name="other")
    dsopt("study", "create", "study.yaml")
    restored = dsopt.json("db", "restore", "copy.db", "--replace")
    assert restored["studies"] == ["simulated"]
    assert [study["name"] for study in dsopt.json("study", "list")] == ["simulated"]
    del dsopt.environment["SIMULATED_SECONDS"]
    assert "is finished" in dsopt("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt)


@pytest.mark.slow
def test_a_backup_in_another_database_ends_no_run_of_the_first_one(dsopt: Dsopt) -> None:
    """Its workers never beat there, so they were taken for dead, and their runs ended."""
    process = worker_with_a_long_run(dsopt)
    first = dsopt.environment["DSOPT_STORAGE"]
    dsopt("db", "backup", "copy.db")
    dsopt.environment["DSOPT_STORAGE"] = f"sqlite:///{dsopt.cwd / 'second.db'}"
    dsopt("db", "restore", "copy.db")
    assert dsopt.json("workers") == []
    _age_heartbeats(dsopt.cwd / "second.db")
    del dsopt.environment["SIMULATED_SECONDS"]
    dsopt.environment["DSOPT_DEVICE_LOCKS"] = str(dsopt.cwd / "locks")  # as for a worker with other devices
    assert "is finished" in dsopt("worker", "simulated", "--devices", "cpu:2")
    assert process.poll() is None
    dsopt.environment["DSOPT_STORAGE"] = first
    [worker] = dsopt.json("workers")
    assert [run["candidate"] for run in worker["runs"]] == ["baseline"]


def _age_heartbeats(database: Path) -> None:
    with sqlite3.connect(database, timeout=60) as connection:
        connection.execute("UPDATE dsopt_workers SET heartbeat_at = heartbeat_at - 7200")
    connection.close()


@pytest.mark.parametrize("name", ["copy.db", "c%41o#p?y.db"])
def test_a_backup_restores_into_nothing_and_can_be_used_where_it_is(dsopt: Dsopt, name: str) -> None:
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    assert dsopt.json("db", "backup", name)["studies"] == ["simulated"]
    for path in (dsopt.cwd / "storage").iterdir():
        path.unlink()
    (dsopt.cwd / name).chmod(0o400)
    dsopt("db", "restore", name)
    assert "which this dsopt needs" in dsopt("db", "check")
    assert [study["name"] for study in dsopt.json("study", "list")] == ["simulated"]


@pytest.mark.parametrize("damage", ["no backup", "truncated", "damaged", "empty", "other"])
def test_what_is_no_backup_leaves_the_storage_as_it_is(dsopt: Dsopt, damage: str) -> None:
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    file = dsopt.cwd / "copy.db"
    if damage in ("truncated", "damaged"):
        dsopt("db", "backup", "copy.db")
        content = file.read_bytes()
        middle = len(content) // 2
        file.write_bytes(
            content[:middle] if damage == "truncated" else content[:middle] + b"\xff" * 4096 + content[middle + 4096 :]
        )
    elif damage == "other":
        with sqlite3.connect(file) as connection:
            connection.execute("CREATE TABLE notes (text)")
        connection.close()
    elif damage == "empty":
        file.touch()
    output = dsopt("db", "restore", "copy.db", "--replace", code=1)
    assert "copy.db: " in output
    assert "Traceback" not in output
    assert [study["name"] for study in dsopt.json("study", "list")] == ["simulated"]


def test_mistakes_change_nothing(dsopt_at_first: Dsopt) -> None:
    assert "no such file" in dsopt_at_first("db", "backup", "copy.db", code=1)
    write_study(dsopt_at_first.cwd)
    dsopt_at_first("study", "create", "study.yaml")
    assert "copy.db: cannot be written: No such file" in dsopt_at_first("db", "backup", "nowhere/copy.db", code=1)
    assert "error: .: is not a file" in dsopt_at_first("db", "restore", ".", "--replace", code=1)
    assert "is the storage itself" in dsopt_at_first("db", "restore", "storage/dsopt.db", "--replace", code=1)
    with sqlite3.connect(dsopt_at_first.cwd / "theirs.db") as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()
    dsopt_at_first("db", "backup", "copy.db")
    theirs = ("--storage", f"sqlite:///{dsopt_at_first.cwd / 'theirs.db'}")
    assert "tables such as 'notes'" in dsopt_at_first("db", "restore", "copy.db", "--replace", *theirs, code=1)
    assert "nothing to back up" in dsopt_at_first("db", "backup", "new.db", *theirs, code=1)


def test_each_copy_is_one_moment_of_a_database_that_is_written_to(tmp_path: Path) -> None:
    """A writer adds rows in pairs; a copy that mixed two moments would have an odd number, or be damaged."""
    database = tmp_path / "live.db"
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE pairs (value)")
    connection.close()
    ended = threading.Event()

    def write() -> None:
        with sqlite3.connect(database, timeout=60, isolation_level=None) as writer:
            while not ended.is_set():
                writer.execute("BEGIN IMMEDIATE")
                for _ in range(2):
                    writer.execute("INSERT INTO pairs VALUES (hex(randomblob(2000)))")
                writer.execute("COMMIT")
        writer.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        counts = []
        for number in range(10):
            copy = tmp_path / f"{number}.db"
            backup.copy_to_file(database, copy)
            with sqlite3.connect(copy) as connection:
                counts.append(connection.execute("SELECT count(*) FROM pairs").fetchone()[0])
            connection.close()
    finally:
        ended.set()
        thread.join()
    assert counts == sorted(counts)
    assert all(count % 2 == 0 for count in counts)


def test_postgres_is_backed_up_and_restored_by_the_commands_that_are_told(tmp_path: Path, postgres_url: str) -> None:
    with_password = re.sub(r"//([^:@/]+)(:[^@]*)?@", r"//\1:the-secret@", postgres_url)
    dsopt = Dsopt(tmp_path, with_password)
    assert "nothing to back up" in dsopt("db", "backup", "my copy.dump", code=1)
    write_study(tmp_path)
    dsopt("study", "create", "study.yaml")

    def run_told(*args: str) -> None:
        output = dsopt(*args, code=1)
        assert "the-secret" not in output
        told = shlex.split(output.strip().splitlines()[-1])
        subprocess.run([program(told[0]), *told[1:]], check=True, cwd=tmp_path)

    run_told("db", "backup", "my copy.dump")
    dsopt("study", "delete", "simulated", "--yes")
    write_study(tmp_path, name="other")
    dsopt("study", "create", "study.yaml")
    assert "would be lost: other" in dsopt("db", "restore", "my copy.dump", code=1)
    run_told("db", "restore", "my copy.dump", "--replace")
    assert [study["name"] for study in dsopt.json("study", "list")] == ["simulated"]
    assert "which this dsopt needs" in dsopt("db", "check")


@pytest.mark.slow
def test_a_worker_goes_on_where_its_database_was_restored_under_it(tmp_path: Path, postgres_url: str) -> None:
    """What it ran last is in the restored one as a run that nobody ends."""
    dsopt = Dsopt(tmp_path, postgres_url)
    write_study(tmp_path, ds_config={"train_micro_batch_size_per_gpu": [4, 8], "zero_optimization": {"stage": [0]}})
    dsopt("study", "create", "study.yaml")
    told = [shlex.split(dsopt("db", *command, code=1).strip().splitlines()[-1])
            for command in (("backup", "copy"), ("restore", "copy", "--replace"))]  # fmt: skip
    dsopt.environment["SIMULATED_SECONDS"] = "6"
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    try:
        _wait_for(lambda: _running(dsopt) == "baseline")
        for command in told:
            subprocess.run([program(command[0]), *command[1:]], check=True, cwd=tmp_path)
            _wait_for(lambda: _running(dsopt) not in ("", "baseline"))
        assert worker.wait(timeout=200) == 0
    finally:
        worker.kill()
        worker.communicate()
    check_nothing_lost_nothing_doubled(dsopt)


def _running(dsopt: Dsopt) -> str:
    return "".join(run["candidate"] for worker in dsopt.json("workers") for run in worker["runs"])


def _wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
