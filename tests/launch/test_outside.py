"""What a run has left in the working folder, noted by whoever sees to its end, and what is the user's all the same."""

import json
import os
import time
from pathlib import Path

import pytest

from dsopt.launch.beside import meet
from dsopt.launch.outside import Left, in_place_before_undone, note_after, note_before, noted, still_left
from dsopt.launch.undone import undo
from dsopt.protocol.events import EventWriter
from dsopt.protocol.file_events import saved_file
from dsopt.protocol.run_dir import RunDir

NEVER = 2**63


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def begun(work: Path) -> RunDir:
    run_dir = RunDir.create(work.parent / "results", "r")
    note_before(run_dir, work, ())
    return run_dir


def test_what_is_there_as_a_run_has_left_it_is_known_until_somebody_changes_it(work: Path) -> None:
    run_dir = begun(work)
    (work / "checkpoint-1").mkdir()
    weights = work / "checkpoint-1" / "m.pt"
    weights.write_text("an experiment's")
    undo(run_dir)
    assert noted(run_dir) == Left(paths=(work / "checkpoint-1",))
    assert [*still_left(run_dir.path.parent)] == [work / "checkpoint-1"]
    time.sleep(0.05)
    weights.write_text("the user's")  # in its place, as their own training does
    assert [*still_left(run_dir.path.parent)] == []


def test_what_the_user_has_moved_there_or_removed_meanwhile_is_theirs(work: Path) -> None:
    (work / "old.pt").touch()
    run_dir = begun(work)
    (work / "new.pt").touch()
    time.sleep(0.05)
    until_ns = time.time_ns()
    time.sleep(0.05)
    elsewhere = work.parent / "best.pt"
    elsewhere.touch()
    os.utime(elsewhere, (1e9, 1e9))
    elsewhere.rename(work / "best.pt")
    (work / "old.pt").unlink()
    note_after(run_dir, until_ns, is_in_place=False, is_late=True)
    assert noted(run_dir).paths == (work / "new.pt",)


@pytest.mark.parametrize("is_kept", [False, True])
def test_what_a_run_beside_has_saved_is_its_own_business(work: Path, is_kept: bool) -> None:
    """Of another study, in the same folder of the user's; unless this one has left something there, too."""
    (work / "checkpoints").mkdir()
    run_dir, other = begun(work), RunDir.create(work.parent / "others", "o")
    meet(run_dir, other)
    for one, name in ((other, "b.pt"), (run_dir, "a.pt")):
        (work / "checkpoints" / name).touch()
        writer = EventWriter(one, 0)
        writer.emit(saved_file(0, work / "checkpoints" / name))
        writer.close()
    if not is_kept:
        (work / "checkpoints" / "a.pt").unlink()
    note_after(run_dir, NEVER, is_in_place=False, is_late=False)
    assert noted(run_dir).paths == ((work / "checkpoints",) if is_kept else ())


@pytest.mark.parametrize(
    "spoiled",
    [
        "", "[]", "{", "7", '{"folder": 1, "passed_over": [], "traces": {}}',
        '{"folder": "a\\u0000b", "passed_over": [], "traces": {}}',
        '{"folder": "\\ud800", "passed_over": [], "traces": {}}',
        '{"folder": "/", "passed_over": [], "traces": {"a": 1e999}}',
        '{"folder": "/", "passed_over": [], "traces": {"a\\u0000": 1}}',
        '{"paths": {"a\\u0000": 1}, "saves_in_place": 1}', '{"paths": [1]}',
    ],
)  # fmt: skip
def test_a_note_that_a_script_has_spoiled_is_none(work: Path, spoiled: str) -> None:
    run_dir = begun(work)
    for name in ("before.json", "outside.json"):
        (run_dir.path / name).write_text(spoiled)
    undo(run_dir)
    assert run_dir.undone.exists()
    assert not in_place_before_undone(run_dir)
    assert [*still_left(run_dir.path.parent)] == []
    (run_dir.path / "outside.json").write_text(json.dumps({"paths": {"x": 1}, "saves_in_place": True}))
    assert noted(run_dir).saves_in_place
