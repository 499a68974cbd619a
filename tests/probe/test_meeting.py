"""Ranks and runs that move, replace and remove the same files, and paths at which one file comes after another."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsopt.launch.beside import began_ns, meet
from dsopt.launch.undone import undo
from dsopt.probe.territory import Territory
from dsopt.protocol import birth
from dsopt.protocol.run_dir import BEGAN_VARIABLE, RunDir
from tests.probe.rank import BEGINNING, files, needs_births, run, write_old

RUN_INTO = {
    "what was written and moved on": """
open("log.1", "a").write("of the run")
os.replace("log.1", "log.2")
os.replace("log", "log.1")
os.replace("log.1", "log.2")
""",
    "what was written and removed": """
open("log", "w").write("of the run")
os.remove("log")
os.rename("log.1", "log")
os.rename("log", "log.2")
""",
    "folders": """
open("run/m.csv", "w").write("of the run")
os.rename("run", "run.1")
os.rename("base", "run")
os.rename("run", "run.2")
""",
    "what a function saved": """
save("model")
os.remove("model")
os.rename("log", "model")
os.rename("model", "log.old")
""",
}


@pytest.mark.parametrize("way", RUN_INTO)
def test_the_users_files_may_come_to_paths_of_the_runs_own(tmp_path: Path, way: str) -> None:
    needs_births(tmp_path)
    work = tmp_path / "work"
    for name in ("log", "log.1", "run/m.csv", "base/m.csv"):
        write_old(work / name, f"the user's {name}")
    before, run_dir = files(work), RunDir.create(tmp_path, "run")
    run(run_dir, work, RUN_INTO[way])
    undo(run_dir)
    assert files(work) == before
    assert run_dir.undone.exists()


ROTATES = """
import logging, logging.handlers
logging.raiseExceptions = False
print(flush=True)
sys.stdin.readline()
handler = logging.handlers.RotatingFileHandler("log", maxBytes=2000, backupCount=3)
for _ in range(20):
    handler.emit(logging.LogRecord("", 20, "", 0, "x" * 300, (), None))
"""


def test_ranks_that_rotate_one_log_lose_nothing(tmp_path: Path) -> None:
    """Each renames what another has just put there."""
    needs_births(tmp_path)
    work = tmp_path / "work"
    for name in ("log", "log.1", "log.2"):
        write_old(work / name, f"the user's {name}")
    before, run_dir = files(work), RunDir.create(tmp_path / "results", "run")
    environment = {**os.environ, BEGAN_VARIABLE: str(began_ns(run_dir, work, 900))}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", BEGINNING.replace("run_dir, 0)", f"run_dir, {rank})") + ROTATES, run_dir.path],
            cwd=work, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(4)
    ]  # fmt: skip
    for rank in ranks:
        assert rank.stdout is not None
        rank.stdout.readline()  # it is ready
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.write("\n")
        rank.stdin.flush()
    assert [rank.communicate()[1] for rank in ranks] == [""] * 4
    undo(run_dir)
    assert files(work) == before


STEPS = {
    "one removes what the other moves to": (
        "os.remove('log.1')",
        "os.rename('log', 'log.1'); open('log', 'w').write('of b')",
    ),
    "one moves away what the other moves to, and replaces it": (
        "os.rename('log.1', 'log.2')",
        "os.rename('log', 'log.1')",
        "open('new', 'w').write('of a'); os.replace('new', 'log.1')",
    ),
}


FOLDERS = {
    "one writes in a folder that the other removes": ("open('d/m.csv', 'w').write('of a')", "shutil.rmtree('d')"),
    "one removes in a folder that the other moves": ("os.remove('d/m.csv')", "os.rename('d', 'd.old')"),
    "one moves into a folder that the other removes": ("os.rename('log', 'd/log')", "shutil.rmtree('d')"),
    "one moves a folder in which the other writes": ("os.rename('d', 'd.old')", "open('d.old/m.csv', 'w').write('b')"),
    "one moves a folder out of which the other moves": ("os.rename('d', 'd.old')", "os.rename('d.old/m.csv', 'm.csv')"),
}


@pytest.mark.parametrize("are_of_one_study", [True, False])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("way", STEPS | FOLDERS)
def test_two_runs_that_move_the_same_files_are_undone_in_any_order(
    tmp_path: Path, way: str, first: int, are_of_one_study: bool
) -> None:
    needs_births(tmp_path)
    work = tmp_path / "work"
    for name in ("log", "log.1", "d/m.csv", "d/n.csv"):
        write_old(work / name, f"the user's {name}")
    results = [tmp_path / "results", tmp_path / ("results" if are_of_one_study else "others")]
    before, runs = files(work), [RunDir.create(folder, name) for folder, name in zip(results, "ab", strict=True)]
    began = [began_ns(run_dir, work, 900) for run_dir in runs]
    if not are_of_one_study:
        meet(*runs)
    steps = (STEPS | FOLDERS)[way]
    # the first run goes on while the second one does its part
    other = f"subprocess.run([sys.executable, '-c', {BEGINNING + steps[1]!r}, {str(runs[1].path)!r}], check=True)"
    own, *more = steps[0], *steps[2:]
    run(runs[0], work, "\n".join(["import subprocess", own, other, *more]), min(began))
    undo(runs[first])
    undo(runs[1 - first])
    assert files(work) == before


def test_a_folder_that_cannot_be_looked_at_counts_as_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = RunDir.create(tmp_path / "results", "run").mark.stat().st_mtime_ns - birth.CLOCK_NS
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").write_text("of the run")
    assert not birth.was_there(tmp_path / "new", began)
    looked_at = birth._kind_of

    def closed(path: Path) -> int | None:
        if path.name == "file":
            raise PermissionError
        return looked_at(path)

    monkeypatch.setattr(birth, "_kind_of", closed)
    assert birth.was_there(tmp_path / "new", began)


def test_what_vanishes_from_a_folder_hides_nothing_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_old(tmp_path / "old" / "file")
    entries = [tmp_path / "old" / "gone", tmp_path / "old" / "file"]
    began = RunDir.create(tmp_path / "results", "run").mark.stat().st_mtime_ns
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(entries))
    assert birth.was_there(tmp_path / "old", began)


def test_a_cache_that_the_working_folder_lies_in_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `HF_HOME=/workspace` with the project in /workspace."""
    work = tmp_path / "project"
    for name in ("HF_HOME", "XDG_CACHE_HOME", "TORCH_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    found = Territory(work, tmp_path / "run")
    assert not found.is_exempt(work / "log", is_noted=False)
    assert not found.is_exempt(tmp_path / "results", is_noted=False)
    assert found.is_cached(tmp_path / "hub" / "models--gpt2")


def test_what_a_copy_replaces_comes_back_with_its_mode_and_date(tmp_path: Path) -> None:
    work = tmp_path / "work"
    write_old(work / "model.pt")
    (work / "model.pt").chmod(0o600)
    before, run_dir = (work / "model.pt").stat(), RunDir.create(tmp_path, "run")
    run(run_dir, work, "save('new.pt')\nfor copy in (shutil.copy, shutil.copy2): copy('new.pt', 'model.pt')")
    undo(run_dir)
    after = (work / "model.pt").stat()
    assert (after.st_mode, after.st_mtime, after.st_size) == (before.st_mode, before.st_mtime, before.st_size)


def test_threads_that_save_do_not_disturb_what_removes(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    run(RunDir.create(tmp_path, "run"), work, """
import threading
from pathlib import Path as P
saves, is_over = isolation._saves, threading.Event()
def go_on():
    number = 0
    while not is_over.is_set():
        number += 1
        saves.around_save(lambda: None, "save", f"new/{number}")
        time.sleep(0.0002)
thread = threading.Thread(target=go_on)
thread.start()
try:
    for _ in range(100):
        P("file").touch()
        os.remove("file")
        os.mkdir("folder")
        shutil.rmtree("folder")
finally:
    is_over.set()
    thread.join()
""")  # fmt: skip


def test_errors_are_pythons_own(tmp_path: Path) -> None:
    """With results below the working folder, as they are."""
    work = tmp_path / "work"
    write_old(work / "out" / "m.csv")
    run_dir = RunDir.create(work / "out" / "dsopt", "run")
    run(run_dir, work, """
for act, args in (
    (os.remove, [""]), (os.remove, ["."]), (os.remove, ["out"]), (os.rename, ["", "x"]), (os.rename, ["out", "no/out"]),
):
    try:
        act(*args)
    except OSError:
        continue
    raise AssertionError(args)
""")  # fmt: skip


def test_the_users_file_may_replace_what_the_run_saved(tmp_path: Path) -> None:
    needs_births(tmp_path)
    work = tmp_path / "work"
    write_old(work / "data")
    run_dir = RunDir.create(tmp_path, "run")
    run(run_dir, work, "writer._stepped[0] = 0\nsave('model')\nos.replace('data', 'model')\nsave('model')")
    undo(run_dir)
    assert files(work) == {"data": "the user's"}


def test_a_folder_with_the_runs_own_stays(tmp_path: Path) -> None:
    """A script may begin with an empty `out`, where dsopt has been told to keep its results."""
    work = tmp_path / "work"
    write_old(work / "out" / "m.csv")
    run_dir = RunDir.create(work / "out" / "dsopt", "run")
    run(run_dir, work, "shutil.rmtree('out')\nos.rename('out', 'out.old')\nos.makedirs('out')\nopen('out/m.csv', 'a')")
    undo(run_dir)
    assert files(work)["out/m.csv"] == "the user's"
    assert run_dir.undone.exists()
