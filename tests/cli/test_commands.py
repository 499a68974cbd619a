"""The command line: start-up, exit codes, one clear message for each mistake, nothing changed by one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import Dsopt
from tests.studies import STUDY, write_study


def test_help_imports_nothing_heavy() -> None:
    program = """
import sys
from pathlib import Path
sys.argv = ["dsopt", "--help"]
try:
    from dsopt.cli.main import main
    main()
except SystemExit as end:
    assert end.code in (0, None), end.code
heavy = {"torch", "deepspeed", "optuna", "sqlalchemy", "xgboost", "pydantic", "numpy", "scipy", "rich", "alembic"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for command in (
        *(
            "study",
            "diff",
            "worker",
            "workers",
            "tune",
            "run",
            "compare",
            "estimate",
            "import",
            "db",
            "report-issue",
            "dashboard",
        ),
    ):
        assert f"  {command} " in done.stdout


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["study", "create", "missing.yaml"], 1, "missing.yaml: no such file"),
        (["study", "show", "nothing"], 1, "there is no study yet"),
        (["study", "best", "nothing"], 1, "there is no study yet"),
        (["study", "best", "nothing", "-o", "-"], 2, "--output needs the name of a file"),
        (["worker", "nothing"], 1, "there is no study yet"),
        (["worker", "--devices", "gpu:1"], 1, "'gpu:1' does not name a device"),
        (["worker", "--devices", "7-3"], 1, "'7-3' does not name a device"),
        (["worker", "--devices", "cpu:0"], 1, "'cpu:0' means no slots; use at least cpu:1."),
        (["worker", "--devices", "999"], 1, "no GPU 999 here"),
        (["tune", "--", "python", "train.py"], 1, "starts with 'python'"),
        (["tune"], 2, "Missing argument"),
        (["study"], 2, "Usage: dsopt study"),
        (["study", "crate"], 2, "No such command 'crate'"),
        (["study", "list", "--storage", "mysql://u:secret@h/d"], 1, "'mysql' is not supported"),
        (["study", "list", "--storage", "postgresql://u:secret@127.0.0.1:1/d"], 1, "u:***@127.0.0.1:1/d cannot be"),
        (["study", "show", "\udcff"], 2, "'\\udcff' is not UTF-8 text"),
        (["study", "list", "--storage", "sqlite:///\udcff.db"], 2, "is not UTF-8 text"),
        (["study", "list", "--storage", "sqlite:///a.db?mode=ro"], 1, "an SQLite URL has no options (mode)"),
        (["db", "check"], 1, "no such file. Create it with: dsopt db upgrade"),
        (["dashboard", "--port", "99999"], 2, "99999 is not in the range"),
        (["dashboard", "--root-path", "dsopt"], 2, "'dsopt' is not a path such as /dsopt"),
        (["dashboard", "--root-path", '/a"b'], 2, "is not a path such as /dsopt"),
        (["dashboard", "--root-path", "//elsewhere"], 2, "is not a path such as /dsopt"),
        (["dashboard", "--token", "short"], 1, "--token: a token has 16 to 200 letters"),
        (["dashboard", "--token-file", "/dev/zero"], 1, "--token-file /dev/zero: is a pipe or a device"),
        (["dashboard", "--token-file", "missing"], 1, "--token-file missing: cannot be read: No such file"),
    ],
)
def test_mistakes(dsopt_at_first: Dsopt, args: list[str], code: int, message: str) -> None:
    output = dsopt_at_first(*args, code=code)
    assert message in output
    assert "Traceback" not in output
    assert "secret" not in output


def test_a_working_folder_whose_name_is_no_text_is_refused(dsopt: Dsopt) -> None:
    dsopt.cwd = dsopt.cwd / os.fsdecode(b"\xff")
    dsopt.cwd.mkdir()
    write_study(dsopt.cwd)
    assert "study.yaml" in dsopt("study", "create", "study.yaml", code=1)
    assert "is not UTF-8 text" in dsopt("tune", "--devices", "cpu:2", "--", *STUDY["command"].split(), code=1)
    del dsopt.environment["DSOPT_STORAGE"]
    assert "--storage: " in dsopt("study", "list", code=1)


def test_reading_commands_speak_json(dsopt: Dsopt) -> None:
    assert dsopt.json("study", "list") == []
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    assert [s["name"] for s in dsopt.json("study", "list")] == ["simulated"]
    shown = dsopt.json("study", "show", "simulated")
    assert shown["runs"] == []
    assert [row["tuning_space"] for row in shown["stages"]] == ["z0", "z1", "z2", "z3"]
    assert dsopt.json("db", "check")["current"] is True
    assert "has no result yet" in dsopt("study", "best", "simulated", "--json", code=1)


def test_the_life_of_a_study_that_is_never_run(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd)
    assert "Created study 'simulated'" in dsopt("study", "create", "study.yaml")
    assert "already exists with the same spec" in dsopt("study", "create", "study.yaml")
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump({**STUDY, "timeout_seconds": 7}))
    assert '+  "timeout_seconds": 7.0' in dsopt("study", "create", "study.yaml", code=1)
    assert "was not stopped" in dsopt("study", "resume", "simulated")
    assert "Stopped study" in dsopt("study", "stop", "simulated")
    assert "is already stopped" in dsopt("study", "stop", "simulated")
    assert "Resumed study" in dsopt("study", "resume", "simulated")
    dsopt("study", "delete", "simulated", "--yes")
    assert "There is no study yet" in dsopt("study", "list")


@pytest.mark.parametrize(
    ("typed", "wrong", "message"),
    [
        ("--num_gpus 2", "--num_gpus 64", "--num_gpus 64: this worker has 2 CPU slots"),
        ("/scripts/deepspeed ", "/deepspeed ", "/deepspeed' does not exist, or is not a program"),
        ("train.py ", "train.py --token $NO_TOKEN ", "the variable 'NO_TOKEN' is not set"),
    ],
)
def test_what_cannot_run_here_is_refused_before_anything_is_created(
    dsopt: Dsopt, typed: str, wrong: str, message: str
) -> None:
    write_study(dsopt.cwd)
    command = STUDY["command"].replace(typed, wrong)
    assert command != STUDY["command"]
    output = dsopt("tune", "--devices", "cpu:2", "--", *command.split(), code=1)
    assert message in output
    assert dsopt.json("study", "list") == []


def test_tune_names_the_study_after_the_script_and_goes_on_with_it(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd)
    (dsopt.cwd / "ds.json").write_text(
        json.dumps({"train_micro_batch_size_per_gpu": [4, 8], "zero_optimization": {"stage": 1}})
    )
    command = ["tune", "--devices", "cpu:2", "--", *STUDY["command"].split()]
    output = dsopt(*command)
    assert "Created study 'train'" in output
    assert "times as fast as your configuration (95 % interval" in output
    again = dsopt(*command)
    assert "Continuing study 'train'" in again
    assert "is finished" in again


def test_run_has_the_exit_code_of_the_training(dsopt: Dsopt) -> None:
    """The stub launcher starts nothing outside of an experiment: the training fails."""
    write_study(dsopt.cwd, ds_config={"train_micro_batch_size_per_gpu": [4], "zero_optimization": {"stage": [0]}})
    output = dsopt("run", "--devices", "cpu:2", "--", *STUDY["command"].split(), code=1)
    assert "Training with the best configuration" in output


def test_a_working_folder_that_was_removed_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"import os; os.rmdir({str(gone)!r}); from dsopt.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "study", "list"], cwd=gone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "error: the working folder was removed. Go to one that is there (cd), and try again.\n"
