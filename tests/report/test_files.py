"""Result files are a study's own only once all of them are written."""

from dataclasses import replace
from pathlib import Path

import pytest

from dsopt.report.files import FilesOf, were_scaled, write_table, written_files
from dsopt.study.spec import StudySpec

ABOUT = FilesOf(created_at=1.0, finished_at=2.0, is_scaled=False)


def test_files_count_once_the_last_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"name": "s", "command": "deepspeed t.py", "cwd": str(tmp_path), "ds_config": {}}
    spec = StudySpec.model_validate(keys)
    again = FilesOf(created_at=1.0, finished_at=3.0, is_scaled=False)
    written = write_table(spec, ABOUT, "first")
    assert written_files(spec, ABOUT, any_scaling=False) == written

    def is_killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dsopt.report.files._note", is_killed)
        with pytest.raises(KeyboardInterrupt):
            write_table(spec, again, "second")
    assert written[0].read_text() == "second\n"
    assert written_files(spec, again, any_scaling=False) is None
    assert write_table(spec, again, "second") == written_files(spec, again, any_scaling=False)
    assert written_files(spec, ABOUT, any_scaling=False) is None


def test_a_study_has_its_own_choice_of_the_learning_rate_beside_that_of_another_of_its_name(tmp_path: Path) -> None:
    keys = {"name": "s", "command": "deepspeed t.py", "cwd": str(tmp_path), "ds_config": {}}
    spec = StudySpec.model_validate(keys)
    assert not were_scaled(spec, 1.0, 2.0)
    write_table(spec, replace(ABOUT, is_scaled=True), "first")
    assert were_scaled(spec, 1.0, 2.0)
    assert were_scaled(spec, 1.0, None)  # it goes on
    assert not were_scaled(spec, 0.5, 3.0)  # that of another database; it has no files yet
    write_table(spec, FilesOf(created_at=0.5, finished_at=1.0, is_scaled=False), "of before")  # beside it
    assert were_scaled(spec, 1.0, 2.0)
    assert not were_scaled(spec, 0.5, 1.0)
