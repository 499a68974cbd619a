"""A study whose folder somebody has moved: nothing runs, and nothing is made where it was."""

import shutil

from tests.conftest import Dsopt
from tests.studies import write_study


def test_a_moved_folder_is_named_and_not_made_anew(dsopt: Dsopt) -> None:
    study = dsopt.cwd / "mine"
    study.mkdir()
    write_study(study)
    dsopt("study", "create", "mine/study.yaml")
    study.rename(dsopt.cwd / "moved")
    said = dsopt("worker", "simulated", "--devices", "cpu:2", code=1)
    assert f"study 'simulated': its working folder {study} is not on this node. If it was moved, move it back" in said
    assert not study.exists()
    (dsopt.cwd / "moved").rename(study)
    assert "Study 'simulated' is finished." in dsopt("worker", "simulated", "--devices", "cpu:2")


def test_a_copied_folder_runs_the_first_ones_script_and_says_so(dsopt: Dsopt) -> None:
    first, copy = dsopt.cwd / "first", dsopt.cwd / "copy"
    first.mkdir()
    write_study(first)
    dsopt("study", "create", "first/study.yaml")
    shutil.copytree(first, copy)
    dsopt.cwd = copy
    said = dsopt("worker", "simulated", "--devices", "cpu:2")
    assert f"study 'simulated' runs {first}/train.py, and not {copy}/train.py" in said
    assert "Study 'simulated' is finished." in said
