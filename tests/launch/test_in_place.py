"""Runs that would meet in the user's own folder."""

from pathlib import Path

import pytest

from dsopt.launch.in_place import saves_in_place
from dsopt.protocol.events import EventWriter, Moved
from dsopt.protocol.file_events import being_saved, saved_file
from dsopt.protocol.run_dir import RunDir


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "results", "r")


def tell(run_dir: RunDir, *events: object) -> None:
    writer = EventWriter(run_dir, 0)
    for event in events:
        writer.emit(event)  # type: ignore[arg-type]
    writer.close()


def moved(path: Path, to: Path) -> Moved:
    return Moved(rank=0, path=str(path), to=str(to), inode="1", host="h", time=1)


def test_a_run_that_saves_in_the_working_folder_does(run_dir: RunDir, tmp_path: Path) -> None:
    assert not saves_in_place(run_dir, tmp_path)
    (folder := tmp_path / "ckpt").mkdir()
    tell(run_dir, saved_file(0, folder))  # DeepSpeed's own saves are skipped, and make a folder
    assert not saves_in_place(run_dir, tmp_path)
    (model := tmp_path / "model.pt").write_text("weights")
    tell(run_dir, being_saved(0, model))
    assert saves_in_place(run_dir, tmp_path)


@pytest.mark.parametrize(
    ("name", "size", "meets"), [("train.log", 10, False), ("data.bin", 2**21, True), ("model.pt", 10, True)]
)
def test_what_is_the_users_is_met_there_if_it_is_much(
    run_dir: RunDir, tmp_path: Path, name: str, size: int, meets: bool
) -> None:
    (aside := tmp_path / "aside").mkdir()
    (aside / name).write_bytes(bytes(size))
    tell(run_dir, moved(tmp_path / name, aside / name))
    assert saves_in_place(run_dir, tmp_path) == meets


def test_a_folder_of_the_users_is_much(run_dir: RunDir, tmp_path: Path) -> None:
    (aside := tmp_path / "aside" / "best").mkdir(parents=True)
    tell(run_dir, moved(tmp_path / "best", aside))
    assert saves_in_place(run_dir, tmp_path)
