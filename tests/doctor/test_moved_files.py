"""Files that a run has moved, and that nobody has put back: found whatever the machine's name was."""

import os
import platform
from pathlib import Path

import pytest

from dsopt.doctor.moved_files import check_moved_files
from dsopt.launch.undone import undo
from dsopt.protocol.events import EventWriter
from dsopt.protocol.file_events import moved_file
from dsopt.protocol.run_dir import RunDir
from dsopt.study.folders import results_folder
from tests.doctor.made import study


def test_what_a_killed_run_has_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = study(tmp_path)
    assert [one.status for one in check_moved_files(spec)] == ["ok"]
    run_dir, log = RunDir.create(results_folder(spec), "z1"), tmp_path / "log"
    log.write_text("the user's")
    with monkeypatch.context() as before:
        before.setattr(platform, "node", lambda: "another-name")
        writer = EventWriter(run_dir, 0)
        writer.emit(moved_file(0, log, tmp_path / "log.1", os.lstat(log), 1))
        writer.close()
    log.rename(tmp_path / "log.1")
    undo(run_dir)
    [found] = check_moved_files(spec)
    assert found.status == "warning"
    assert found.message.startswith(f"the script of run z1 moved {log} to {log}.1, and nobody has put it back")
    (tmp_path / "log.1").rename(log)
    assert [one.status for one in check_moved_files(spec)] == ["ok"]


def test_what_a_killed_run_has_written_over_in_a_closed_folder(tmp_path: Path) -> None:
    spec = study(tmp_path)
    run_dir, log = RunDir.create(results_folder(spec), "z1"), tmp_path / "log"
    log.write_text("of the run")
    run_dir.aside.mkdir()
    (run_dir.aside / "kept").write_text("the user's")
    writer = EventWriter(run_dir, 0)
    writer.emit(moved_file(0, log, run_dir.aside / "kept", os.lstat(log), 1, is_copy=True))
    writer.close()
    [found] = check_moved_files(spec)
    assert f"wrote to {log}: what that held is in {run_dir.aside / 'kept'}, and nobody" in found.message
    undo(run_dir)
    assert log.read_text() == "the user's"
    assert [one.status for one in check_moved_files(spec)] == ["ok"]
