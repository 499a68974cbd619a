"""`--help` of every command, and `import dsopt`, import nothing heavy: that is why they answer at once."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import dsopt
from dsopt.api.events import TaskEnded
from dsopt.cli.options import complete_study
from tests.api.dry import dry_run
from tests.conftest import Dsopt

HEAVY = {
    "torch", "deepspeed", "transformers", "optuna", "sqlalchemy", "alembic", "xgboost", "pydantic", "numpy", "scipy",
    "pandas", "rich", "psutil", "yaml",
}  # fmt: skip
HELP = f"""
import contextlib, io, sys
import click
from dsopt.cli.main import dsopt

def paths(command, path=()):
    yield path
    if isinstance(command, click.Group):
        for name in command.list_commands(None):
            yield from paths(command.get_command(None, name), (*path, name))

for path in paths(dsopt):
    with contextlib.redirect_stdout(io.StringIO()) as told:
        dsopt([*path, "--help"], standalone_mode=False, prog_name="dsopt")
    assert told.getvalue().startswith("Usage: dsopt"), path
    loaded = {HEAVY!r} & set(sys.modules)
    assert not loaded, (path, loaded)
    print(" ".join(path))
"""


def in_a_fresh_process(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_of_every_command_imports_nothing_heavy() -> None:
    seen = in_a_fresh_process(HELP).splitlines()
    assert len(seen) > 20
    assert {"", "study create", "study best", "db upgrade", "tune", "run", "worker", "compare", "dashboard"} <= set(
        seen
    )


def test_import_dsopt_imports_nothing_heavy() -> None:
    heavy = HEAVY | {"click"}
    in_a_fresh_process(f"import sys, dsopt; dir(dsopt); loaded = {heavy} & set(sys.modules); assert not loaded, loaded")


def test_every_public_name_is_there_and_typed() -> None:
    assert set(dsopt.__all__) <= set(dir(dsopt))
    for name in dsopt.__all__:
        assert getattr(dsopt, name) is not None
    assert dsopt.events.TaskEnded.__name__ == "TaskEnded"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dsopt.nothing


def test_listing_studies_and_workers_imports_only_what_reads_their_rows(sqlite_url: str, tmp_path: Path) -> None:
    dsopt.create_study(dry_run(tmp_path), storage=sqlite_url).close()
    program = f"""
import sys, dsopt
assert [study.name for study in dsopt.list_studies(storage={sqlite_url!r})] == ["dry"]
loaded = {HEAVY - {"sqlalchemy", "yaml"}!r} & set(sys.modules)
assert not loaded, loaded
assert dsopt.list_workers(storage={sqlite_url!r}) == []
loaded = {HEAVY - {"sqlalchemy", "yaml", "psutil"}!r} & set(sys.modules)
assert not loaded, loaded
"""
    in_a_fresh_process(program)


def test_what_dsopt_calculates_has_one_thread_and_what_it_starts_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    program = """
import os
before = dict(os.environ)
from dsopt.api.one_thread import calculate_on_one_thread
calculate_on_one_thread()
import numpy
numpy.ones((500, 500)) @ numpy.ones((500, 500))
assert dict(os.environ) == before
print(len(os.listdir("/proc/self/task")))
"""
    assert in_a_fresh_process(program).strip() == "1"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert in_a_fresh_process(program).strip() == str(min(2, os.cpu_count() or 1))


def test_too_little_memory_is_refused_before_linear_algebra_would_wait_for_it(dsopt: Dsopt) -> None:
    limited = ["/bin/sh", "-c", f"ulimit -v 600000; exec {sys.executable} -m dsopt worker a"]
    done = subprocess.run(limited, cwd=dsopt.cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "may have 585 MiB of address space (ulimit -v). Expected at least 1024 MiB. Raise" in done.stderr


@pytest.mark.parametrize("storage", ["sqlite:///\0", f"sqlite:///{'a' * 5000}", "mysql://a", "nonsense"])
def test_completion_says_nothing_where_it_finds_nothing(storage: str) -> None:
    context = click.Context(click.Command("show"))
    context.params["storage"] = storage
    assert complete_study(context, click.Argument(["name"]), "") == []


@pytest.mark.parametrize("is_over", [True, False])
def test_showing_a_study_imports_only_what_reads_it(sqlite_url: str, tmp_path: Path, is_over: bool) -> None:
    with dsopt.create_study(dry_run(tmp_path), storage=sqlite_url) as study:
        for event in study.work("cpu:1"):
            if isinstance(event, TaskEnded) and not is_over:
                break
    unneeded = HEAVY - {"optuna", "sqlalchemy", "pydantic", "numpy", "rich", "psutil", "yaml"}
    unneeded |= {"sqlalchemy.orm", "dsopt.experiment.outcome", "dsopt.search.plan", "dsopt.worker.loop"}
    in_a_fresh_process(f"""
import sys
from dsopt.cli.main import dsopt
dsopt(["study", "show", "dry", "--storage", {sqlite_url!r}], standalone_mode=False)
loaded = {unneeded!r} & set(sys.modules)
assert not loaded, loaded
""")
