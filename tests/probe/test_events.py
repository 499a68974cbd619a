"""How a rank writes what it tells."""

import os
from pathlib import Path

import pytest

from dsopt.protocol.events import End, Error, Event, EventWriter, Flops, Oom
from dsopt.protocol.run_dir import RunDir


@pytest.mark.parametrize(
    ("event", "is_last"),
    [
        (Flops(rank=0, flops_per_step=1.0), False),
        (Oom(rank=0, message="no"), True),
        (Error(rank=0, type="ValueError", message="no"), True),
        (End(rank=0), True),
    ],
)
def test_last_words_are_on_the_disk_before_the_rank_ends(
    event: Event, is_last: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may otherwise tell the worker of them after it has called the run a crash."""
    run_dir, synced = RunDir.create(tmp_path, "run"), []
    writer = EventWriter(run_dir, rank=0)
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(run_dir.events(0).read_text()))
    writer.emit(event)
    writer.close()
    assert len(synced) == is_last
    assert all(f'"event": "{event.kind}"' in content for content in synced)


def test_a_file_that_cannot_be_synced_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int) -> None:
        raise OSError("no")

    run_dir = RunDir.create(tmp_path, "run")
    monkeypatch.setattr(os, "fsync", refuse)
    writer = EventWriter(run_dir, rank=0)
    writer.emit(End(rank=0))
    writer.close()
    assert '"event": "end"' in run_dir.events(0).read_text()
