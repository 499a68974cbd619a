"""PostgreSQL's first server dies, and the one that follows it takes over, without the last that was written."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Dsopt
from tests.outages import Server
from tests.postgres import program
from tests.studies import check_nothing_lost_nothing_doubled, write_study
from tests.worker.test_ending_while_waiting import until_said
from tests.worker.test_protocol_runs import wait_for_a_run

pytestmark = pytest.mark.slow


class Standby:
    """A server that follows the first by streaming replication, without the first waiting for it."""

    def __init__(self, server: Server, data: Path, sockets: Path) -> None:
        self._data, self._owner = data, (server.data.stat().st_uid, server.data.stat().st_gid)
        for folder in (data, sockets):
            folder.mkdir(0o700)
            os.chown(folder, *self._owner)
        self._run("pg_basebackup", "-d", server.direct_url, "-D", data, "-R", "-X", "stream", "-c", "fast")
        with (data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"unix_socket_directories = '{sockets}'\nlisten_addresses = ''\n")
        self.url = f"{server.direct_url.partition('?host=')[0]}?host={sockets}"
        self._run("pg_ctl", "-D", data, "-l", data / "log", "-w", "start")

    def _run(self, name: str, *words: str | Path) -> None:
        user, group = self._owner
        subprocess.run([program(name), *words], user=user, group=group, extra_groups=[], cwd="/", check=True)

    def lag(self) -> None:
        """It hears no more of the first."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
            connection.execute("SELECT pg_reload_conf()")
            while connection.execute("SELECT count(*) FROM pg_stat_wal_receiver").fetchone() != (0,):
                time.sleep(0.1)

    def take_over(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-w", "promote")

    def close(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")


@pytest.fixture
def standby(server: Server, tmp_path: Path) -> Iterator[Standby]:
    standby = Standby(server, tmp_path / "standby", tmp_path / "s")
    yield standby
    standby.close()


@pytest.fixture
def dsopt(tmp_path: Path, server: Server, standby: Standby) -> Dsopt:
    """Its address names both servers: whoever connects takes the one that can write."""
    url = f"{server.direct_url}&host={standby.url.partition('?host=')[2]}&target_session_attrs=read-write"
    dsopt = Dsopt(tmp_path, url)
    dsopt.environment["SIMULATED_SECONDS"] = "1"
    write_study(tmp_path)
    dsopt("study", "create", "study.yaml")
    return dsopt


def begun(folder: Path) -> int:
    return len([*folder.glob("autotuning_results/*/ds_config.json")])


def known_by(url: str) -> int:
    """How many runs a server knows."""
    with psycopg.connect(url) as connection:
        [count] = connection.execute("SELECT count(*) FROM trials").fetchone() or (0,)
    return int(count)


def test_a_server_takes_over_that_does_not_know_all(
    dsopt: Dsopt, server: Server, standby: Standby, tmp_path: Path
) -> None:
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(tmp_path)
    standby.lag()
    before = begun(tmp_path)
    while begun(tmp_path) < before + 3:  # of these, the second server will know nothing
        assert worker.poll() is None
        time.sleep(0.05)
    assert known_by(standby.url) < known_by(server.direct_url)
    server.kill()
    until_said(worker, "Waiting: the database cannot be used now")
    standby.take_over()
    output, _ = worker.communicate(timeout=200)
    assert worker.returncode == 0, output
    assert "Going on." in output
    check_nothing_lost_nothing_doubled(dsopt)
    assert {run["state"] for run in dsopt.json("study", "show", "simulated")["runs"]} == {"measured"}
