"""How long a database has been silent, over all tries to reach it."""

import threading

import pytest
import sqlalchemy as sa

from dsopt.errors import Interrupted
from dsopt.worker import patience
from dsopt.worker.happenings import Happening, WorkerPaused, WorkerWentOn
from dsopt.worker.patience import Patience

AWAY = sa.exc.OperationalError("BEGIN IMMEDIATE", {}, Exception("database is locked"))


def test_the_time_without_an_answer_does_not_begin_anew_with_each_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was to stop took three seconds: each of its last questions had one of its own."""
    monkeypatch.setattr(patience, "_PAUSES", (0.01, 0.01))
    silent: list[float] = []
    told: list[type[Happening]] = []
    asked = Patience(threading.Event(), lambda happening: told.append(type(happening)))

    def act() -> str:
        silent.append(asked.unanswered_seconds)
        if len(silent) < 4:
            raise AWAY
        return "here"

    assert asked(act) == "here"
    assert silent == sorted(silent) and silent[-1] >= 0.03
    assert asked.unanswered_seconds == asked.asking_seconds == 0
    assert told == [WorkerPaused, WorkerWentOn]


def test_it_goes_on_after_a_question_that_was_given_up() -> None:
    stop = threading.Event()
    stop.set()
    asked = Patience(stop, lambda _: None)

    def fail() -> None:
        raise AWAY

    with pytest.raises(Interrupted):
        asked(fail)
    assert asked.unanswered_seconds > 0
    assert asked.asking_seconds == 0


def test_an_error_is_an_answer() -> None:
    asked = Patience(threading.Event(), lambda _: None)
    with pytest.raises(ZeroDivisionError):
        asked(lambda: 1 / 0)
    assert asked.unanswered_seconds == 0
