"""Several users of one database: what belongs to one is closed to the others, and keeps them from nothing of theirs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.dry import dry_run
from tests.conftest import Dsopt
from tests.studies import write_study

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
_ANOTHER = 12345  # the id of a user who is nobody here
_LOOK_FOR_MOVED_FILES = """
import dsopt
from dsopt.doctor.moved_files import check_moved_files
with dsopt.load_study("dry") as study:
    for check in check_moved_files(study._stored.spec):
        print(check.status, check.message)
"""


def as_another(dsopt: Dsopt, *words: str, cwd: Path, code: int = 0, program: tuple[str, ...] = ("-m", "dsopt")) -> str:
    """Runs `dsopt` without the rights of root, to which all files are open."""
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, *program]
    done = subprocess.run([*drop, *words], cwd=cwd, env=dsopt.environment, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def close(folder: Path, *, is_all: bool) -> None:
    """Gives a folder with all in it to another user; `is_all`: not only what dsopt has made is closed to others."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, _ANOTHER, _ANOTHER, follow_symlinks=False)
    folder.chmod(0o700 if is_all else 0o755)


@pytest.mark.parametrize("is_all", [False, True])
def test_anybody_can_read_what_a_study_found(dsopt: Dsopt, is_all: bool) -> None:
    theirs, mine = dsopt.cwd / "theirs", dsopt.cwd / "mine"
    for folder in (theirs, mine):
        folder.mkdir()
    (dsopt.cwd / "dry.yaml").write_text(json.dumps(dry_run(theirs)))
    dsopt("study", "create", "dry.yaml")
    dsopt("worker", "dry", "--devices", "cpu:1")
    close(theirs, is_all=is_all)
    shown = as_another(dsopt, "study", "show", "dry", cwd=mine)
    assert "finished" in shown and shown == dsopt("study", "show", "dry")
    assert "Wrote " in as_another(dsopt, "report", "dry", cwd=mine)
    refused = as_another(dsopt, "study", "best", "dry", cwd=mine, code=1)
    assert "is closed to you, as another user's" in refused and "dsopt study best dry --output FILE" in refused
    assert "Configuration: " in as_another(dsopt, "study", "best", "dry", "--output", "best.json", cwd=mine)
    assert (mine / "best.json").exists()
    diagnosis = as_another(dsopt, cwd=mine, program=("-c", _LOOK_FOR_MOVED_FILES))
    assert diagnosis.startswith("warning ") and "is closed to you, so nobody looked" in diagnosis


def test_a_study_in_a_closed_folder_keeps_nobody_from_working(dsopt: Dsopt) -> None:
    theirs, mine = dsopt.cwd / "theirs", dsopt.cwd / "mine"
    for folder, name in ((theirs, "theirs"), (mine, "mine")):
        folder.mkdir()
        write_study(folder, name=name)
        dsopt("study", "create", f"{name}/study.yaml")
    close(theirs, is_all=True)
    told = as_another(dsopt, "worker", "--until-idle", "--devices", "cpu:2", cwd=mine, code=1)
    assert "study 'theirs': " in told and "Permission denied" in told
    assert {study["name"]: study["state"] for study in dsopt.json("study", "list")}["mine"] == "finished"
