"""When a worker ends: with its studies, when it has nothing to begin, or when somebody drains it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import dsopt
from dsopt.store.engine import connect
from dsopt.store.url import storage_url
from dsopt.store.workers import Dead, bury
from tests.api.dry import dry_run
from tests.conftest import SCRIPTS
from tests.studies import STUDY, until, write_study
from tests.worker.test_protocol_runs import wait_for_a_run

# The runs of this launcher wait for a file.
GATE = """#!/bin/sh
while [ ! -e "$PWD/go" ]; do sleep 0.05; done
exec %s "$@"
"""


def write_gated_study(folder: Path) -> None:
    launcher = folder / "bin" / "deepspeed"
    launcher.parent.mkdir()
    launcher.write_text(GATE % (SCRIPTS / "deepspeed"))
    launcher.chmod(0o755)
    write_study(
        folder,
        command=STUDY["command"].replace(str(SCRIPTS / "deepspeed"), str(launcher)),
        ds_config={"train_micro_batch_size_per_gpu": [4, 8], "zero_optimization": {"stage": 1}},
        confirmation={"finalists": 1, "rounds": 1},
    )


@pytest.fixture
def gated(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dsopt.Study]:
    """A study whose runs wait for the file `go` in the working folder."""
    monkeypatch.setenv("DSOPT_STORAGE", sqlite_url)
    monkeypatch.setenv("SIMULATED_SECONDS", "0")
    write_gated_study(tmp_path)
    yield dsopt.create_study(tmp_path / "study.yaml")
    (tmp_path / "go").touch()  # a test that fails leaves no worker that waits


def create_dry_run(folder: Path, name: str) -> dsopt.Study:
    (folder / name).mkdir()
    return dsopt.create_study(dry_run(folder / name, confirmation={"finalists": 1, "rounds": 1}), name=name)


def working(folder: Path, studies: list[dsopt.Study] | None = None) -> dsopt.WorkerThread:
    """A worker that is in a run, and waits for the file."""
    worker = dsopt.start_worker(studies, "cpu:2")
    wait_for_a_run(folder)
    return worker


def ended(worker: dsopt.WorkerThread) -> list[str]:
    """The studies whose end a worker tells, once it has ended."""
    worker.join()
    return [event.study.name for event in worker.events() if isinstance(event, dsopt.events.StudyFinished)]


def test_a_worker_on_all_studies_takes_each_in_turn_also_one_created_meanwhile(
    gated: dsopt.Study, tmp_path: Path
) -> None:
    create_dry_run(tmp_path, "second")
    worker = working(tmp_path)
    create_dry_run(tmp_path, "third")
    (tmp_path / "go").touch()
    assert ended(worker) == ["simulated", "second", "third"]


def test_until_idle_does_not_wait_for_the_runs_of_others(gated: dsopt.Study, tmp_path: Path) -> None:
    create_dry_run(tmp_path, "second")
    other = working(tmp_path, [gated])
    assert ended(dsopt.start_worker(None, "cpu:4", until_idle=True)) == ["second"]
    assert other.is_alive() and gated.state == "baseline"
    (tmp_path / "go").touch()
    assert ended(other) == ["simulated"]


def test_until_idle_works_as_long_as_there_is_something_to_begin(gated: dsopt.Study, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    assert ended(dsopt.start_worker([gated], "cpu:2", until_idle=True)) == ["simulated"]


def test_a_worker_that_was_taken_for_dead_while_it_waited_is_back(gated: dsopt.Study, tmp_path: Path) -> None:
    """It had no run whose record could tell it, and waited for ever."""
    busy = working(tmp_path, [gated])
    waiting = dsopt.start_worker([gated], "cpu:4")
    until(lambda: len(dsopt.list_workers()) == 2)
    [idle] = [worker for worker in dsopt.list_workers() if not worker.runs]
    engine = connect(storage_url(os.environ["DSOPT_STORAGE"]))
    assert bury(engine, Dead(id=idle.id, is_gone=True))
    engine.dispose()
    until(lambda: len(dsopt.list_workers()) == 2)
    assert idle.id not in {worker.id for worker in dsopt.list_workers()}
    (tmp_path / "go").touch()
    assert ended(busy) == ended(waiting) == ["simulated"]


@pytest.mark.parametrize("how", ["thread", "database"])
def test_a_drained_worker_ends_its_run_and_begins_no_other(gated: dsopt.Study, tmp_path: Path, how: str) -> None:
    second = create_dry_run(tmp_path, "second")
    worker = working(tmp_path)
    [known] = dsopt.list_workers()
    if how == "thread":
        worker.drain()
    else:
        assert dsopt.drain_workers(["nowhere"]) == []
        [asked] = dsopt.drain_workers([f"{os.uname().nodename[:1]}*"])
        assert asked.id == known.id
        assert dsopt.list_workers()[0].is_draining
    (tmp_path / "go").touch()
    assert ended(worker) == []
    assert [(run.candidate, run.state) for run in gated.runs] == [("baseline", "measured")]
    assert second.runs == [] and dsopt.list_workers() == []
    assert ended(dsopt.start_worker([gated], "cpu:2")) == ["simulated"]
