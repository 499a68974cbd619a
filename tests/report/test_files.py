"""Result files are a study's own only once all of them are written."""

from pathlib import Path

import pytest

from dsopt.report.files import FilesOf, write_table, written_files
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
