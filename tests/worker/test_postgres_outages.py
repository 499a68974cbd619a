"""PostgreSQL's disk is full, another server takes over, a table is locked: workers wait, and lose nothing."""

import os
import subprocess
from pathlib import Path

import psycopg
import pytest

from dsopt import load_study
from tests.conftest import Dsopt
from tests.outages import Server
from tests.studies import check_nothing_lost_nothing_doubled, write_study
from tests.worker.test_ending_while_waiting import create, started, until_said
from tests.worker.test_full_database import fill
from tests.worker.test_protocol_runs import wait_for_a_run

pytestmark = pytest.mark.slow


def working(dsopt: Dsopt) -> "subprocess.Popen[str]":
    """A worker in its first run."""
    dsopt.environment["SIMULATED_SECONDS"] = "1"
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(dsopt.cwd)
    return worker


def check_it_went_on(dsopt: Dsopt, worker: "subprocess.Popen[str]") -> None:
    output, _ = worker.communicate(timeout=200)
    assert worker.returncode == 0, output
    assert "Going on." in output
    check_nothing_lost_nothing_doubled(dsopt)
    assert {run["state"] for run in dsopt.json("study", "show", "simulated")["runs"]} == {"measured"}


def test_another_server_takes_over(tmp_path: Path, server: Server) -> None:
    """It has a copy of the data, and answers at the same address."""
    dsopt = Dsopt(tmp_path, server.url)
    worker = working(dsopt)
    server.stop()
    until_said(worker, "Waiting: the database cannot be used now")
    subprocess.run(["cp", "-a", "pg", "copy"], cwd=tmp_path, check=True)
    (tmp_path / "pg").rename(tmp_path / "failed")
    (tmp_path / "copy").rename(tmp_path / "pg")
    server.start()
    check_it_went_on(dsopt, worker)


def test_a_training_waits_for_a_database_that_went_away_after_the_last_run(tmp_path: Path, server: Server) -> None:
    """It ended with an error, and nobody trained that night."""
    dsopt = Dsopt(tmp_path, server.url)
    write_study(tmp_path, ds_config={"train_micro_batch_size_per_gpu": [4], "zero_optimization": {"stage": [0]}})
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:2")
    study, told = load_study("simulated", storage=server.url), list[str]()

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == 1:
            server.start()

    server.stop()
    assert study.train(devices="cpu:2", tell=tell) == 1  # the stub launcher starts nothing outside of an experiment
    assert "the database cannot be used now" in told[0]
    study.close()


def test_a_full_disk_of_the_server_is_waited_for(tmp_path: Path, server: Server, small_disk: Path) -> None:
    """Its tables are on that disk; its log is elsewhere, as a server that cannot write it ends."""
    folder, owner = small_disk / "tables", (tmp_path / "pg").stat()
    folder.mkdir(0o700)
    os.chown(folder, owner.st_uid, owner.st_gid)
    with psycopg.connect(server.direct_url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'".encode())
        connection.execute("CREATE DATABASE small TABLESPACE small")
    dsopt = Dsopt(tmp_path, server.url.replace("/postgres?", "/small?"))
    worker = working(dsopt)
    rest = fill(small_disk)
    until_said(worker, "No space left on device")
    rest.unlink()
    check_it_went_on(dsopt, worker)


def test_a_worker_that_begins_while_its_table_is_locked_waits_for_it(tmp_path: Path, postgres: str) -> None:
    """PostgreSQL gives up a lock after 15 seconds; the worker ended with 1."""
    dsopt = Dsopt(tmp_path, postgres)
    create(dsopt, 0.2)
    with psycopg.connect(postgres) as holder:
        holder.execute("LOCK TABLE dsopt_workers IN ACCESS EXCLUSIVE MODE")
        worker = started(dsopt)
        until_said(worker, "the database cannot be used now: canceling statement due to lock timeout")
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0 and "is finished" in output, output
