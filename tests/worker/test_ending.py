"""What a worker was asked."""

import pytest

from dsopt.worker import ending
from dsopt.worker.ending import Ending


def test_a_drain_is_new_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that fails an hour later has not heard the signal: its failure is its own."""
    now = 1000.0
    monkeypatch.setattr(ending.time, "monotonic", lambda: now)
    asked = Ending()
    assert not asked.drain.was_just_set()
    asked.drain.set()
    assert asked.drain.was_just_set()
    now += 3600
    asked.drain.set()  # each heartbeat that reads it sets it
    assert asked.is_asked
    assert not asked.drain.was_just_set()
