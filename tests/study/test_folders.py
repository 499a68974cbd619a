"""The folders of a study's files: its own, and never what others wrote."""

import concurrent.futures
import os
from pathlib import Path

import pytest

from dsopt.errors import DsoptError
from dsopt.study import folders
from dsopt.study.folders import check_folders, own_folder
from dsopt.study.spec import StudySpec


def test_an_empty_folder_becomes_the_studys(tmp_path: Path) -> None:
    base = tmp_path / "autotuning_results"
    assert own_folder(base, "a") == base
    (base / "z0_gas1_tmbspg1").mkdir()
    assert own_folder(base, "a") == base


def test_a_pipe_that_says_whose_the_folder_is_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".dsopt-study")
    with pytest.raises(OSError, match="it is not a file"):
        own_folder(tmp_path, "a")


def test_a_full_disk_leaves_no_empty_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It made every run of the study wait for a second, again and again, for a name that nobody wrote."""
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patched:
        patched.setattr(folders, "create_private", lambda _: full)
        with pytest.raises(OSError, match="No space left"):
            own_folder(tmp_path, "a")
    assert list(tmp_path.iterdir()) == []
    assert own_folder(tmp_path, "a") == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == [".dsopt-study"]


def test_another_studys_folder_is_left_alone(tmp_path: Path) -> None:
    assert own_folder(tmp_path, "a") == tmp_path
    assert own_folder(tmp_path, "b") == tmp_path / "b"
    assert own_folder(tmp_path, "b") == tmp_path / "b"
    assert own_folder(tmp_path, "a") == tmp_path


def test_what_deepspeed_wrote_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "summary.txt").write_text("DeepSpeed's own")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes").touch()
    assert own_folder(tmp_path, "b") == tmp_path / "b.2"
    assert (tmp_path / "summary.txt").read_text() == "DeepSpeed's own"


def test_workers_that_begin_at_once_agree(tmp_path: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: own_folder(tmp_path / "r", "ab"[number % 2]), range(64)))
    assert len(set(found[::2])) == 1
    assert len(set(found[1::2])) == 1
    assert set(found) in ({tmp_path / "r", tmp_path / "r" / "a"}, {tmp_path / "r", tmp_path / "r" / "b"})


def test_a_mark_that_was_never_written_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / ".dsopt-study").touch()
    assert own_folder(tmp_path, "a") == tmp_path / "a"


def test_a_results_folder_behind_a_dead_link_is_refused_with_the_link(tmp_path: Path) -> None:
    (tmp_path / "to").symlink_to(tmp_path / "unmounted")
    keys = {"name": "s", "command": "deepspeed t.py", "cwd": str(tmp_path), "ds_config": {}}
    for folder in ("to", "to/results"):
        spec = StudySpec.model_validate(keys | {"autotuning": {"results_dir": folder}})
        with pytest.raises(DsoptError, match=f"to' is a link to '{tmp_path}/unmounted', which is not there. Fix the"):
            check_folders(spec)
