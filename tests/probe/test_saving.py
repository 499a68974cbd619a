"""Whatever way a script has of keeping checkpoints: the user's stay as they are, and its own are gone after the run."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from dsopt.launch.undone import undo
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import Saved
from dsopt.protocol.run_dir import RunDir

BEGINNING = """
import os, shutil, sys, tempfile, time
from pathlib import Path
import torch
from dsopt.probe.isolation import Isolation
from dsopt.protocol.events import EventWriter, Step
from dsopt.protocol.run_dir import RunDir
run_dir = RunDir(Path(sys.argv[1]))
isolation, writer = Isolation(), EventWriter(run_dir, 0)
isolation.activate(writer, run_dir)
writer.emit(Step(rank=0, step=1, seconds=1.0, samples=1))
weights = {"step": 9}
def save(path):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    torch.save(weights, path)
"""
WAYS = {
    "above the working folder": """
save("../out/latest.pt.tmp"); os.replace("../out/latest.pt.tmp", "../out/latest.pt")
""",
    "by an absolute path with dots": """
save(os.getcwd() + "/../out/new.pt"); save(os.getcwd() + "/../out/latest.pt")
""",
    "as a tar": """
save("../out/last.pth.tar.tmp"); os.replace("../out/last.pth.tar.tmp", "../out/last.pth.tar")
save("../out/fresh.tar")
""",
    "without a suffix": """
save("../out/model"); save("../out/model.new"); os.replace("../out/model.new", "../out/plain")
""",
    "as a folder": """
save("../out/last.tmp/model.pt")
if os.path.exists("../out/last"):
    os.rename("../out/last", "../out/last.old")
os.rename("../out/last.tmp", "../out/last") if not os.path.exists("../out/last") else None
shutil.rmtree("../out/last.old", ignore_errors=False)
save("../out/next.tmp/model.pt"); os.rename("../out/next.tmp", "../out/next")
""",
    "by a copy": """
save("../out/new.pt"); shutil.copy("../out/new.pt", "../out/latest.pt"); shutil.copy2("../out/new.pt", "../out/best.pt")
""",
    "with a rotation": """
save("../out/step_9.pt"); os.remove("../out/step_1.pt"); Path("../out/step_2.pt").unlink(); shutil.rmtree("../out/last")
""",
    "through a link to what is not there": """
os.symlink("step_9.pt", "../out/newest.pt"); save("../out/newest.pt")
""",
    "by links that name the newest": """
def point(name):
    temporary = Path("../out/temporary")
    temporary.symlink_to("step_9")
    os.replace(temporary, name)
last, best, other, mine = (Path("../out") / name for name in ("newest", "best", "other", "mine"))
point(last)
best.unlink()
best.symlink_to("step_9")
if other.exists():
    os.remove(other)
os.symlink("step_9.pt", other)
for _ in range(2):
    point(mine)
mine.unlink()
os.symlink("step_9", mine)
assert os.readlink(mine) == "step_9"
""",
    "in a fork": """
if os.fork() == 0:
    save("../out/forked.pt"); save("../out/latest.pt")
    os._exit(0)
os.wait()
""",
    "over its own": """
for _ in range(3):
    save("../out/mine.pt.tmp"); os.replace("../out/mine.pt.tmp", "../out/mine.pt")
os.remove("../out/mine.pt"); save("../out/mine.pt")
assert torch.load("../out/mine.pt") == weights
""",
}
THEIRS = ("latest.pt", "last.pth.tar", "plain", "last/model.pt", "step_1.pt", "step_2.pt")


LINKS = {"newest": "last", "best": "last", "other": "step_1.pt"}


def users(folder: Path) -> None:
    for name in THEIRS:
        path = folder / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the user's")
        os.utime(path, (1e9, 1e9))
    for name, target in LINKS.items():
        (folder / "out" / name).symlink_to(target)


def files(folder: Path) -> dict[str, str]:
    links = {str(p.relative_to(folder)): f"to {p.readlink()}" for p in folder.rglob("*") if p.is_symlink()}
    plain = [p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()]
    return {str(p.relative_to(folder)): p.read_text(errors="replace") for p in plain} | links


@pytest.mark.parametrize("above", ["jobs", ".jobs"])
@pytest.mark.parametrize("way", WAYS)
def test_the_users_files_stay_and_its_own_go(tmp_path: Path, way: str, above: str) -> None:
    work, run_dir = tmp_path / above / "work", RunDir.create(tmp_path / "results", "baseline")
    work.mkdir(parents=True)
    users(work.parent)
    before = files(work.parent)
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING + WAYS[way], run_dir.path], cwd=work, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    undo(run_dir)
    assert files(work.parent) == before


def test_a_file_that_is_cut_when_the_run_is_killed_goes_too(tmp_path: Path) -> None:
    run_dir, path = RunDir.create(tmp_path / "results", "baseline"), tmp_path / "latest.pt"
    script = BEGINNING + "\nweights = {str(n): torch.zeros(5_000_000) for n in range(40)}\nsave('latest.pt')\n"
    rank = subprocess.Popen([sys.executable, "-c", script, run_dir.path], cwd=tmp_path)
    while not path.exists() or path.stat().st_size < 10_000_000:
        assert rank.poll() is None
        time.sleep(0.001)
    rank.send_signal(signal.SIGKILL)
    rank.wait()
    [told] = [event for event in EventReader(run_dir).read() if isinstance(event, Saved)]
    assert told.changed == "" and path.stat().st_size < 40 * 5_000_000 * 4
    undo(run_dir)
    assert not path.exists()


ROTATIONS = {
    "a backup of the last results": """
shutil.rmtree("run.bak", ignore_errors=False)
shutil.move("run", "run.bak")
os.makedirs("run")
Path("run/metrics.jsonl").write_text("its own")
""",
    "numbered backups": """
for number in (2, 1):
    if os.path.exists(f"log.{number}"):
        os.replace(f"log.{number}", f"log.{number + 1}")
os.rename("log", "log.1")
Path("log").write_text("its own")
""",
    "a file that is written anew and put in its place": """
Path("run/new").write_text("its own")
os.replace("run/new", "run/metrics.jsonl")
os.replace("run/missing", "log") if os.path.exists("run/missing") else None
try:
    os.replace("run/missing", "log")
except FileNotFoundError:
    assert Path("log").read_text() == "the user's"
""",
    "files one by one, and their folder": """
for name in os.listdir("run"):
    os.remove(f"run/{name}")
os.rmdir("run")
Path("log").unlink()
assert os.listdir() and not os.path.exists("run")
""",
    "by way of hidden and temporary places": """
os.rename("run", ".run.old")
shutil.rmtree(".run.old")
temporary = tempfile.mkdtemp()
shutil.move("run.bak", temporary + "/old")
shutil.rmtree(temporary)
""",
    "far down": """
shutil.rmtree("deep")
""",
    "moves that fail, and to the same name": """
os.rename("log", "log")
for old, new in (("run", "log"), ("missing", "log")):
    try:
        os.replace(old, new)
    except OSError:
        assert Path("log").read_text() == "the user's"
    else:
        raise AssertionError(old)
""",
    "in a fork": """
if os.fork() == 0:
    shutil.rmtree("run")
    os._exit(0)
os.wait()
""",
}
RESULTS = (
    "deep/1/2/3/4/5/log",
    "run/metrics.jsonl",
    "run/samples.txt",
    "run.bak/metrics.jsonl",
    "run.bak/deep/weights.npy",
    "log",
    "log.1",
)


@pytest.mark.parametrize("way", ROTATIONS)
def test_the_users_results_are_put_back(tmp_path: Path, way: str) -> None:
    """Two runs, one after the other: what the first one has made is not the user's either, and is lost with it."""
    work = tmp_path / "work"
    for name in RESULTS:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("the user's")
        os.utime(work / name, (1e9, 1e9))
    before = files(work)
    for _ in range(2):
        run_dir = RunDir.create(tmp_path / "results", "baseline")
        done = subprocess.run(
            [sys.executable, "-c", BEGINNING + ROTATIONS[way], run_dir.path], cwd=work, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        undo(run_dir)
        assert files(work) == before
        assert not run_dir.aside.exists()


def test_what_has_come_in_their_place_is_kept_with_the_run(tmp_path: Path) -> None:
    work, run_dir = tmp_path / "work", RunDir.create(tmp_path / "results", "baseline")
    work.mkdir()
    (work / "log").write_text("the user's")
    os.utime(work / "log", (1e9, 1e9))
    subprocess.run([sys.executable, "-c", BEGINNING + "os.remove('log')", run_dir.path], cwd=work, check=True)
    (work / "log").write_text("another one's")
    undo(run_dir)
    assert files(work) == {"log": "the user's"}
    assert list(files(run_dir.path / "replaced").values()) == ["another one's"]


def test_on_another_file_system_they_wait_in_the_working_folder(tmp_path: Path) -> None:
    """As on a node whose run folder is its own. The script's folder is empty when it believes so."""
    work, run_dir = tmp_path / "work", RunDir.create(Path(tempfile.mkdtemp(dir="/dev/shm")), "baseline")
    (work / "run").mkdir(parents=True)
    (work / "run/log").write_text("the user's")
    os.utime(work / "run/log", (1e9, 1e9))
    way = "os.remove('run/log'); assert not os.listdir('run'); os.rmdir('run')"
    try:
        subprocess.run([sys.executable, "-c", BEGINNING + way, run_dir.path], cwd=work, check=True)
        undo(run_dir)
    finally:
        shutil.rmtree(run_dir.path.parent)
    assert files(work) == {"run/log": "the user's"}
    assert os.listdir(work) == ["run"]
