"""The live view: what it shows is the study's, whoever ran it."""

import errno
import io
import sys

import pytest
from rich.console import Console

from dsopt.api.event_text import event_line
from dsopt.cli import live
from dsopt.cli.live import LiveView
from dsopt.experiment.outcome import Failed, Infeasible
from dsopt.store.attempts import Task
from dsopt.store.stored import StoredStudy
from dsopt.study.part import REFERENCE, Part
from dsopt.study.space import ZERO, Candidate
from dsopt.worker.happenings import StudyProgressed, TaskEnded, TaskStarted, TaskTriedAgain
from tests.made_up import history, observation, spec


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE])
def test_a_log_that_takes_no_line_ends_no_worker(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    class Broken(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(number, "it cannot be written")

    broken = Broken()
    monkeypatch.setattr(sys, "stdout", broken)
    live._echo("a line")
    if sys.stdout is not broken:
        sys.stdout.close()


def test_a_log_that_cannot_be_written_for_another_reason_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise PermissionError(errno.EACCES, "no access")

    monkeypatch.setattr(live.click, "echo", refuse)
    with pytest.raises(PermissionError):
        live._echo("a line")


def test_a_worker_that_has_run_nothing_shows_the_studys_best_and_runs() -> None:
    view = LiveView("2 CPU slots")
    study = StoredStudy(id=1, spec=spec(), state="searching", note=None, created_at=0.0, finished_at=None)
    known = history(observation(Candidate(stage=1, micro_batch=4, gas=1), 99.0))
    view.update(StudyProgressed(study=study, history=known))
    shown = io.StringIO()
    Console(file=shown, width=120).print(view.render())
    assert "none yet" not in shown.getvalue()
    assert "99" in shown.getvalue()
    assert "2 runs done" in shown.getvalue()


def test_a_worker_names_runs_as_people_do() -> None:
    candidate = Candidate(stage=2, micro_batch=24, gas=4, knobs=((f"{ZERO}reduce_bucket_size", 50_000_000),))
    shown = [
        Task(part=Part("z2"), trial=0, name=candidate.name, round=0, candidate=candidate),
        Task(part=REFERENCE, trial=3, name=candidate.name, round=2, candidate=candidate),
        Task(part=REFERENCE, trial=0, name="baseline", round=0),
        Task(part=REFERENCE, trial=1, name="vanilla", round=1),
    ]
    view = LiveView("2 CPU slots")
    study = StoredStudy(id="1", spec=spec(), state="searching", note=None, created_at=0.0, finished_at=None)
    view.update(StudyProgressed(study=study, history=history(observation(candidate, 99.0))))
    for task in shown:
        view.update(TaskStarted(study=study, task=task, history=history()))
    name = "ZeRO 2 · 24 × 4 · bucket 50M"
    assert f"… {name}: launching; {name} · round 2: launching; your configuration: launching; vanilla · round 1: " in (
        view.line()
    )
    told = io.StringIO()
    Console(file=told, width=140).print(view.render())
    assert f"{name}: 99 samples/s" in told.getvalue()
    assert candidate.name not in told.getvalue() + view.line()
    ended = TaskEnded(study=study, task=shown[0], outcome=Infeasible(reason="oom", message="no room"), value=None)
    assert event_line(ended) == f"{name:<34} infeasible, oom: no room"


@pytest.mark.parametrize(
    ("outcome", "is_elsewhere", "line"),
    [
        (Failed(reason="crash", message="KeyError: 'x'"), False, "failed, and is tried again: KeyError: 'x'"),
        (Infeasible(reason="host", message="no"), True, "failed, and is tried again, if possible on another node: no"),
        (Failed(reason="hardware", message="told elsewhere", device=0), False, None),
    ],
)
def test_a_run_that_is_tried_again_is_told_and_not_shown_as_going_on(
    outcome: Failed | Infeasible, is_elsewhere: bool, line: str | None
) -> None:
    view = LiveView("2 CPU slots")
    study = StoredStudy(id="1", spec=spec(), state="searching", note=None, created_at=0.0, finished_at=None)
    task = Task(part=REFERENCE, trial=0, name="baseline", round=0)
    view.update(TaskStarted(study=study, task=task, history=history()))
    event = TaskTriedAgain(task=task, outcome=outcome, is_elsewhere=is_elsewhere)
    view.update(event)
    assert not view.current_runs
    assert view.lines_of(event) == ([f"{'your configuration':<34} {line}"] if line else [])
