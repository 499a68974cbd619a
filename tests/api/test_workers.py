"""Workers in threads: their events, how they are stopped, and what they raise."""

import threading
import time
from pathlib import Path

import pytest

import dsopt
from dsopt.api import workers
from dsopt.errors import DsoptError
from dsopt.launch.processes import processes_of
from tests.api.dry import dry_run
from tests.studies import STUDY, write_study


@pytest.fixture(autouse=True)
def storage(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSOPT_STORAGE", sqlite_url)


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dsopt.Study:
    """A study whose first run takes half a minute to start."""
    monkeypatch.setenv("SIMULATED_SECONDS", "30")
    write_study(tmp_path)
    return dsopt.create_study(tmp_path / "study.yaml")


def workers_alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("dsopt")]


def was_given_back(study: dsopt.Study) -> bool:
    [run] = study.runs
    return run.state == "cancelled" and not processes_of(Path(run.run_dir)) and not workers_alive()


def test_leaving_the_loop_stops_the_worker_and_waits(slow: dsopt.Study) -> None:
    started = time.monotonic()
    for event in slow.work("cpu:2"):
        if isinstance(event, dsopt.events.TaskProgressed):
            break
    assert was_given_back(slow)
    assert time.monotonic() - started < 25
    assert slow.state == "baseline"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_the_caller_raises_stops_the_worker(slow: dsopt.Study, error: type[BaseException]) -> None:
    def fail(event: object) -> None:
        if isinstance(event, dsopt.events.TaskProgressed):
            raise error

    with pytest.raises(error):
        slow.run("cpu:2", fail)
    assert was_given_back(slow)


def test_a_worker_that_is_stopped_joins_without_an_error(slow: dsopt.Study) -> None:
    worker = slow.start_worker("cpu:2")
    assert (worker.devices, worker.is_alive(), worker.was_stopped) == ("2 CPU slots", True, False)
    next(event for event in worker.events() if isinstance(event, dsopt.events.TaskProgressed))
    worker.stop()
    worker.join()
    assert worker.was_stopped and not worker.is_alive()
    assert was_given_back(slow)
    list(worker.events())
    assert list(worker.events()) == []  # each event once


def test_the_end_of_a_block_stops_the_worker(slow: dsopt.Study) -> None:
    with slow.start_worker("cpu:2") as worker:
        next(event for event in worker.events() if isinstance(event, dsopt.events.TaskProgressed))
    assert was_given_back(slow)


def test_joining_raises_what_the_worker_raised(tmp_path: Path) -> None:
    write_study(tmp_path, command=STUDY["command"].replace("--num_gpus 2", "--num_gpus 64"), autotuning={})
    study = dsopt.create_study(tmp_path / "study.yaml")
    worker = study.start_worker("cpu:2")
    assert list(worker.events()) == []
    with pytest.raises(DsoptError, match="--num_gpus 64: this worker has 2 CPU slots"):
        worker.join()
    with pytest.raises(DsoptError, match="--num_gpus 64"):
        study.run("cpu:2")
    with pytest.raises(DsoptError, match="does not name a device"):
        study.run("gpu:2")
    assert not workers_alive()


def test_a_second_worker_is_told_what_the_first_has_done(tmp_path: Path) -> None:
    """Its first event has the study's best, though it has run nothing itself."""
    study = dsopt.create_study(dry_run(tmp_path))
    for event in study.work("cpu:1"):
        if isinstance(event, dsopt.events.StudyProgressed) and event.history.measured:
            break
    first = next(dsopt.load_study("dry").work("cpu:1"))
    assert isinstance(first, dsopt.events.StudyProgressed)
    assert first.history.measured


def test_one_worker_for_several_studies(tmp_path: Path) -> None:
    studies = [dsopt.create_study(dry_run(tmp_path / name), name=name) for name in folders(tmp_path, "one", "two")]
    with dsopt.start_worker(studies, "cpu:1") as worker:
        finished = [e.study.name for e in worker.events() if isinstance(e, dsopt.events.StudyFinished)]
        worker.join()
    assert finished == ["one", "two"]
    assert {study.state for study in studies} == {"finished"}


def folders(parent: Path, *names: str) -> list[str]:
    for name in names:
        (parent / name).mkdir()
    return list(names)


def test_progress_that_nobody_reads_does_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_MOST_UNREAD", 0)
    worker = dsopt.create_study(dry_run(tmp_path)).start_worker("cpu:1")
    worker.join()
    kinds = {type(event) for event in worker.events()}
    assert dsopt.events.TaskProgressed not in kinds
    assert dsopt.events.TaskEnded in kinds
