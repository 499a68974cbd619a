"""A run is judged by what its ranks wrote, however late that is read."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsopt.experiment import run, together
from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Measured, Outcome
from dsopt.experiment.run import Progress, run_experiment
from dsopt.protocol.events import End, Error, EventWriter, Memory, Oom
from dsopt.protocol.run_dir import RunDir
from tests.runs import engine, launch, rules, step, steps

GIB = 2**30


class Ranks:
    """Ranks that have written all of their events already."""

    def __init__(self, code: int | None) -> None:
        self.code = code

    def exit_code(self) -> int | None:
        return self.code

    def observe(self) -> None:
        pass

    def kill(self) -> None:
        pass


def written(folder: Path) -> RunDir:
    run_dir = RunDir(folder)
    first, second = EventWriter(run_dir, 0), EventWriter(run_dir, 1)
    for event in (engine(), *steps(60), End(rank=0)):
        first.emit(event)
    second.emit(Memory(rank=1, peak_allocated_bytes=GIB, peak_reserved_bytes=5 * GIB))
    for writer in (first, second):
        writer._file.close()
    run_dir.stdout.touch()
    run_dir.stderr.touch()
    return run_dir


@pytest.mark.parametrize("code", [None, 0])
def test_late_reading_changes_nothing(tmp_path: Path, code: int | None) -> None:
    """Memory of other ranks counts, the time limit of a worker that was suspended does not, and watchers are told."""
    told: list[Progress] = []
    started = launch(run_dir=written(tmp_path))
    outcome = run_experiment(
        started, rules(timeout_seconds=0.0), lambda: False, told.append, start=lambda _launch: Ranks(code)
    )
    assert isinstance(outcome, Measured), outcome
    assert outcome.peak_memory_bytes == 5 * GIB
    assert len(outcome.step_seconds) < 60  # it ends as soon as that is enough
    assert [progress.engine for progress in told] == [engine()]


def test_a_rank_that_fails_of_another_ones_lack_of_memory_is_not_believed(tmp_path: Path, monkeypatch) -> None:
    """Its peers lose their connection to it, and may be the first to say so."""
    run_dir = written(tmp_path)
    peer, short = EventWriter(run_dir, 1), EventWriter(run_dir, 0)
    peer.emit(Error(rank=1, type="DistBackendError", message="NCCL remote error", time=1.0))

    def wait(_: float) -> None:
        short.emit(Oom(rank=0, message="CUDA out of memory", time=2.0))

    monkeypatch.setattr(run.time, "sleep", wait)
    started = launch(run_dir=run_dir)
    outcome = run_experiment(started, rules(), lambda: False, lambda progress: None, start=lambda _launch: Ranks(None))
    for writer in (peer, short):
        writer._file.close()
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.reason == "oom"


@pytest.mark.parametrize("is_told", [True, False])
def test_a_secret_is_hidden_before_its_message_is_cut(tmp_path: Path, monkeypatch, is_told: bool) -> None:
    """Whether a rank has raised it, or only printed it before it died."""
    monkeypatch.setenv("API_TOKEN", "SECabcdefghijklmnopqrstuvwxyz0123456789")
    run_dir = RunDir(tmp_path)
    token = os.environ["API_TOKEN"]
    said = f"{'x' * 340} token={token} {'y' * 570} {token}"
    run_dir.stdout.touch()
    run_dir.stderr.write_text("" if is_told else said)
    writer = EventWriter(run_dir, 0)
    if is_told:
        writer.emit(Error(rank=0, type="RuntimeError", message=said, time=1.0))
    started = launch(run_dir=run_dir)
    outcome = run_experiment(started, rules(), lambda: False, lambda progress: None, start=lambda _launch: Ranks(1))
    writer._file.close()
    assert isinstance(outcome, Failed), outcome
    assert "token=***" in outcome.message or not is_told
    assert "***" in outcome.message
    assert "SECabc" not in outcome.message
    assert "456789" not in outcome.message


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("code", [-15, 1, 0])  # died of it, or heeded it
def test_a_run_that_is_ended_with_its_worker_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_asked: bool, code: int
) -> None:
    """systemd and Slurm send signals to all processes; the run's may end before the worker's own handler has run."""
    asked = iter([False, False])
    for name in ("_SAME_SIGNAL_SECONDS", "_HEEDED_SECONDS"):
        monkeypatch.setattr(together, name, 60.0 if is_asked else 0.0)
    outcome = ended_with(tmp_path, code, stop_asked=lambda: next(asked, is_asked))
    assert outcome.state == ("cancelled" if is_asked else "failed"), outcome


@pytest.mark.parametrize(("code", "state"), [(-10, "cancelled"), (0, "cancelled")])
def test_a_run_that_dies_of_what_drains_its_worker_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, state: str
) -> None:
    monkeypatch.setattr(together, "_HEEDED_SECONDS", 0.0)
    assert ended_with(tmp_path, code, leave_asked=lambda: True).state == state


def ended_with(
    folder: Path,
    code: int,
    *,
    stop_asked: Callable[[], bool] = lambda: False,
    leave_asked: Callable[[], bool] = lambda: False,
) -> Outcome:
    """The outcome of a run that has told nothing, and has ended with this exit code."""
    run_dir = RunDir(folder)
    run_dir.stdout.touch()
    run_dir.stderr.touch()
    return run_experiment(
        launch(run_dir=run_dir), rules(), stop_asked, lambda _: None, lambda _launch: Ranks(code), leave_asked
    )


def test_a_run_whose_folder_was_removed_ends_at_once(tmp_path: Path) -> None:
    """It can tell nothing, and would be taken for one that hangs."""
    run_dir = RunDir(tmp_path / "run")
    outcome = run_experiment(
        launch(run_dir=run_dir), rules(), lambda: False, lambda _: shutil.rmtree(run_dir.path), lambda _: Ranks(None)
    )
    assert outcome == Cancelled(message=f"somebody has removed {run_dir.path} while the run went on", reason="removed")


def test_the_last_words_of_a_rank_on_another_node_are_waited_for(tmp_path: Path, monkeypatch) -> None:
    """A network file system shows them later than the end of the launcher."""
    run_dir = RunDir(tmp_path)
    remote = EventWriter(run_dir, 1)
    run_dir.stdout.touch()
    run_dir.stderr.touch()
    monkeypatch.setattr(run.time, "sleep", lambda _: remote.emit(Oom(rank=1, message="CUDA out of memory", time=2.0)))
    started = launch("deepspeed --hostfile h t.py --deepspeed_config c.json", run_dir=run_dir)
    outcome = run_experiment(started, rules(), lambda: False, lambda progress: None, start=lambda _launch: Ranks(1))
    remote._file.close()
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.reason == "oom"


@dataclass
class Clock:
    """A clock that goes on only as the test says; a rank writes while the worker waits."""

    now: float = 1000.0
    waits: int = 0

    def outcome(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, ranks: Ranks, rank: Callable[[int], None]
    ) -> Outcome:
        def sleep(seconds: float) -> None:
            self.now += seconds
            rank(self.waits)
            self.waits += 1

        monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=sleep))
        for log in ("stdout.log", "stderr.log"):
            (folder / log).touch()
        started = launch(run_dir=RunDir(folder))
        return run_experiment(started, rules(), lambda: False, lambda progress: None, start=lambda _launch: ranks)


def away_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, away: float, seconds_of: Callable[[int], float]
) -> Outcome:
    """A worker that is away for some seconds in its second wait; the ranks tell ten steps in each."""
    writer, clock = EventWriter(RunDir(folder), 0), Clock()

    def rank(wait: int) -> None:
        clock.now += away if wait == 1 else 0.0
        for number in range(10 * wait, 10 * wait + 10):
            writer.emit(step(number, seconds=seconds_of(number)))

    writer.emit(engine())
    outcome = clock.outcome(folder, monkeypatch, Ranks(None), rank)
    writer._file.close()
    return outcome


def test_the_step_in_which_a_run_was_suspended_may_follow_many_that_were_not_read_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps may be much shorter than the wait between two looks."""
    outcome = away_once(tmp_path, monkeypatch, 5.0, lambda n: 5.001 if n == 17 else 0.001 * (1 + n % 3))
    assert outcome == Cancelled(reason="suspended", message="the worker and its run were suspended for 5 s")


@pytest.mark.parametrize(("longer", "is_both"), [(4.0, True), (7.0, True), (0.5, False)])
def test_on_a_busy_machine_worker_and_run_are_away_for_different_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longer: float, is_both: bool
) -> None:
    """Both wait for a processor before somebody suspends them, and after. A disk that a worker waits for is its own."""
    outcome = away_once(tmp_path, monkeypatch, 6.0, lambda n: 0.001 * (1 + n % 3) + (longer if n == 17 else 0.0))
    assert isinstance(outcome, Cancelled if is_both else Measured), outcome


def test_a_long_step_among_others_was_not_suspended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of batches that are not padded; the worker waited for a disk in one of the longer ones."""
    outcome = away_once(tmp_path, monkeypatch, 4.0, lambda n: 3.5 if n % 10 == 7 else 1.0 + 0.1 * (n % 3))
    assert isinstance(outcome, Measured), outcome


@pytest.mark.parametrize("is_in_a_look", [True, False])
def test_the_time_limit_leaves_out_what_the_worker_was_suspended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_a_look: bool
) -> None:
    """The run had not trained yet, so that its figures are sound."""
    writer, clock, ranks = EventWriter(RunDir(tmp_path), 0), Clock(), Ranks(None)

    def exit_code() -> None:
        clock.now += 100.0 if is_in_a_look and clock.waits == 1 else 0.0

    def rank(wait: int) -> None:
        clock.now += 100.0 if not is_in_a_look and wait == 1 else 0.0
        if wait == 3:
            for event in (engine(), *steps(30)):
                writer.emit(event)

    monkeypatch.setattr(ranks, "exit_code", exit_code)
    outcome = clock.outcome(tmp_path, monkeypatch, ranks, rank)
    writer._file.close()
    assert isinstance(outcome, Measured), outcome


@pytest.mark.parametrize("is_in_a_look", [True, False])
def test_a_run_that_fails_is_not_believed_if_it_was_suspended_but_if_a_disk_was_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_a_look: bool
) -> None:
    """A rank that dies may fill the disk with what it had in memory, every time."""
    clock, ranks = Clock(), Ranks(None)

    def exit_code() -> int | None:
        clock.now += 10.0 if is_in_a_look and clock.waits == 1 else 0.0
        return 1 if clock.waits == 2 else None

    def rank(wait: int) -> None:
        clock.now += 10.0 if not is_in_a_look and wait == 1 else 0.0

    monkeypatch.setattr(ranks, "exit_code", exit_code)
    outcome = clock.outcome(tmp_path, monkeypatch, ranks, rank)
    assert outcome.reason == ("crash" if is_in_a_look else "suspended"), outcome
