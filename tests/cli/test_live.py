"""The live view: what it shows is the study's, whoever ran it."""

import errno
import io
import sys

import pytest
from rich.console import Console

from dsopt.cli import live
from dsopt.cli.live import LiveView
from dsopt.store.stored import StoredStudy
from dsopt.study.space import Candidate
from dsopt.worker.happenings import StudyProgressed
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
