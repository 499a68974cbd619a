"""When a file was made, and what that says of a run."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsopt.protocol import birth
from dsopt.protocol.birth import was_there


@pytest.mark.parametrize("kind", ["here", "overlay"])
def test_what_is_younger_than_now_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The clock was an hour ahead when the user made it, and has been set since; or another machine dated it."""
    if kind == "overlay":
        monkeypatch.setattr(birth, "_kind_of", lambda path: birth._OVERLAY)
    elif birth._kind_of(tmp_path) not in birth._LOCAL:
        pytest.skip("no disk of this machine's own")
    file, hour = tmp_path / "log.txt", 3_600_000_000_000
    file.write_text("the user's")
    now = time.time_ns()
    assert not was_there(file, now - hour)
    monkeypatch.setattr(birth, "time", SimpleNamespace(time_ns=lambda: now - hour))
    assert was_there(file, now - hour)
