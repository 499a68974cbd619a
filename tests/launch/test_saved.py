"""What an experiment has saved goes when its worker or its node's part is killed, too."""

import json
import platform
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dsopt.launch.undone import undo
from dsopt.protocol.events import EventWriter
from dsopt.protocol.file_events import being_saved, saved_file
from dsopt.protocol.run_dir import RunDir
from dsopt.store.orphans import sweep
from dsopt.store.studies import Store
from dsopt.store.workers import leave
from tests.launch.test_guard import WORKER
from tests.store.ledger import spec
from tests.store.test_leases import NONE, at, begin, orphans, slots
from tests.studies import until


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    """Of a run that has saved `model.pt` in the working folder."""
    made = RunDir.create(tmp_path, "r")
    save(made, tmp_path / "model.pt")
    return made


def save(run_dir: RunDir, path: Path) -> None:
    path.write_text("weights")
    writer = EventWriter(run_dir, 0)
    writer.emit(saved_file(0, path))
    writer.close()


def test_the_guard_of_a_killed_worker_removes_it(run_dir: RunDir, tmp_path: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, run_dir.path], start_new_session=True)
    assert worker.wait(timeout=30) == -signal.SIGKILL
    until(lambda: not (tmp_path / "model.pt").exists())


def test_who_frees_the_devices_of_a_dead_worker_removes_it(run_dir: RunDir, storage_url: str, tmp_path: Path) -> None:
    store = Store.open(storage_url, make=True)
    dead = at(store, "a", "boot/1")
    begin(dead, store.create(spec())[0], slots(2), run_dir=run_dir.path)
    leave(store.engine, dead.me)
    assert sweep(store.engine, orphans(store, at(store, "a", "boot/1"), NONE))
    store.close()
    assert not (tmp_path / "model.pt").exists()


def test_each_node_removes_what_its_own_ranks_have_saved(tmp_path: Path) -> None:
    saves = (
        "from pathlib import Path; from tests.launch.test_saved import save; "
        "from dsopt.protocol.run_dir import from_environment; save(from_environment(), Path('model.pt').absolute())"
    )
    part = subprocess.Popen(
        [sys.executable, "-m", "dsopt.launch.part"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert part.stdin is not None and part.stdout is not None
    process = {"argv": [sys.executable, "-c", saves], "environment": {"PYTHONPATH": str(Path.cwd())}}
    start = {"run_dir": "/elsewhere", "cwd": str(tmp_path), "port": 29500, "folders": [], "files": {}}
    start |= {"kind": "cpu", "devices": [0]}
    part.stdin.write(json.dumps({"start": {**start, "processes": [process]}}) + "\n")
    part.stdin.flush()
    while "exit" not in (told := json.loads(part.stdout.readline())):
        assert told.get("refusal") is None, told
    assert told["exit"] == [0, 0] and (tmp_path / "model.pt").exists()
    part.communicate(json.dumps({"end": 0}) + "\n", timeout=30)
    assert not (tmp_path / "model.pt").exists()


def test_a_folder_that_no_worker_has_made_names_nothing_to_remove(run_dir: RunDir, tmp_path: Path) -> None:
    run_dir.mark.unlink()
    undo(run_dir)
    assert (tmp_path / "model.pt").exists()


def test_what_a_script_has_written_among_the_events_stops_nothing(run_dir: RunDir, tmp_path: Path) -> None:
    """A path that is too long for a file system, and a time that is none."""
    told = {"v": 1, "rank": 0, "path": "/x" * 3000, "to": "/x" * 3000, "host": platform.node(), "device": "1"}
    hostile = [
        {**told, "event": "saved", "inode": "1", "size": 1, "changed": "1"},
        {**told, "event": "moved", "inode": "1", "time": 1},
        {**told, "event": "moved", "inode": "1", "time": "soon"},
    ]
    with run_dir.events(0).open("a") as events:
        events.writelines(json.dumps(event) + "\n" for event in hostile)
    undo(run_dir)
    assert not (tmp_path / "model.pt").exists()


@pytest.mark.parametrize("born", ["1", ""])
def test_another_file_with_the_number_of_a_removed_one_stays(tmp_path: Path, born: str) -> None:
    """The file system gives numbers again, and what the run was still writing may have any size and date."""
    made, path = RunDir.create(tmp_path, "r"), tmp_path / "model.pt"
    path.write_text("weights")
    writer = EventWriter(made, 0)
    writer.emit(replace(being_saved(0, path), born=born))
    writer.close()
    undo(made)
    assert path.exists() == bool(born)


def test_weights_that_a_run_has_in_its_own_folder_go_and_logs_stay(tmp_path: Path) -> None:
    old = tmp_path / "old.pt"
    old.write_text("the user's, which the script has moved, and nobody could put back")
    made = RunDir.create(tmp_path, "r")
    own = made.own_path("--output_dir", "")
    time.sleep(0.05)  # the clock of a file system has ticks
    for name, size in {"step_1/model.pt": 5, "step_1/state.json": 5, "log.txt": 5, "data": 2**20 + 1}.items():
        path = own / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
    (own / "step_2").mkdir()
    (own / "step_2" / "rng.pth").touch()
    old.rename(own / "old.pt")
    undo(made)
    left = {str(path.relative_to(own)) for path in own.rglob("*")}
    assert left == {"step_1", "step_1/state.json", "log.txt", "old.pt"}
