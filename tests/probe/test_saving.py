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

from dsopt.launch.beside import began_ns, meet
from dsopt.launch.undone import undo
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import Saved
from dsopt.protocol.run_dir import RunDir
from tests.probe.rank import BEGINNING, files, needs_births, run, write_old
from tests.probe.test_every_way_to_save import going_on

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
    "over yours": """
import torch
for _ in range(2):
    save("../out/latest.pt"); save("../out/plain")
    assert torch.load("../out/latest.pt") == weights == torch.load("../out/plain")
save("../out/last/model.pt"); shutil.copytree("../out/last", "../out/last.bak")
assert torch.load("../out/last.bak/model.pt") == weights
""",
    "with what a killed training has left": """
import torch
save("../out/step_1.pt"); os.replace("../out/step_1.pt", "../out/latest.pt")
assert torch.load("../out/latest.pt") == weights
""",
    "over its own": """
for _ in range(3):
    save("../out/mine.pt.tmp"); os.replace("../out/mine.pt.tmp", "../out/mine.pt")
os.remove("../out/mine.pt"); save("../out/mine.pt")
import torch
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


FOLDERS = """
import torch
import torch.distributed.checkpoint as dcp
def checkpoint(name):
    dcp.save({"weight": torch.zeros(2)}, checkpoint_id=name)
    Path(name, "arguments.json").write_text("{}")
checkpoint("../out/step_1")  # the user's
for step in (10, 20, 30):
    checkpoint(f"../out/runs/step_{step}")
    if step > 10:
        shutil.rmtree(f"../out/runs/step_{step - 10}")
checkpoint("../out/new.tmp")
os.rename("../out/new.tmp", "../out/new")
checkpoint("../out/theirs")
dcp.async_save({"weight": torch.zeros(2)}, checkpoint_id="../out/empty").result()
dcp.save(state_dict={"weight": torch.zeros(2)}, checkpoint_id="../out/named")
dcp.save({"weight": torch.zeros(2)}, storage_writer=dcp.FileSystemWriter("../out/written"))
assert all(os.path.isdir("../out/" + name) for name in ("empty", "named", "written"))
"""


def test_a_script_may_write_beside_a_checkpoint_that_nobody_saves(tmp_path: Path) -> None:
    """Into its folder, which goes after the run, unless another training has saved into it since."""
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    (out / "step_1").mkdir(parents=True)
    (out / "step_1" / "arguments.json").write_text("the user's")
    os.utime(out / "step_1" / "arguments.json", (1e9, 1e9))
    before = files(out)
    time.sleep(0.05)
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(run_dir, work, FOLDERS)
    assert set(os.listdir(out)) == {"step_1", "runs", "new", "theirs", "empty", "named", "written"}
    (out / "theirs" / "model.pt").write_text("theirs")
    undo(run_dir)
    assert files(out) == before | {"theirs/model.pt": "theirs"}
    assert set(os.listdir(out)) == {"step_1", "theirs"}


def test_a_folder_that_runs_beside_each_other_write_to_goes_with_the_last(tmp_path: Path) -> None:
    """And what somebody writes into a folder above those of checkpoints stays."""
    work = tmp_path / "work"
    work.mkdir()
    first, second = (RunDir.create(tmp_path / "results", name) for name in ("a", "b"))
    script = FOLDERS.partition('checkpoint("')[0] + 'checkpoint("out/step_1")\n'
    run(first, work, script)
    environment = {**os.environ, "DSOPT_RUN_DIR": str(second.path)}
    unlike = RunDir.create(tmp_path / "elsewhere", "c")
    unlike.events(0).touch()
    meet(second, unlike)
    argv = [sys.executable, "-c", "input()"]
    of_another = subprocess.Popen(argv, stdin=subprocess.PIPE, env={**os.environ, "DSOPT_RUN_DIR": str(unlike.path)})
    with of_another, subprocess.Popen(argv, stdin=subprocess.PIPE, env=environment) as living:
        run(second, work, script)
        undo(first)
        assert files(work) == {"out/step_1/arguments.json": "{}"}
        living.communicate(b"\n")
        (work / "out" / "notes.txt").write_text("the user's")
        undo(second)
        of_another.communicate(b"\n")
    assert files(work) == {"out/notes.txt": "the user's"} and os.listdir(work / "out") == ["notes.txt"]


@pytest.mark.parametrize("above", ["jobs", ".jobs"])
@pytest.mark.parametrize("way", WAYS)
def test_the_users_files_stay_and_its_own_go(tmp_path: Path, way: str, above: str) -> None:
    work = tmp_path / above / "work"
    work.mkdir(parents=True)
    users(work.parent)
    before = files(work.parent)
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(run_dir, work, WAYS[way])
    undo(run_dir)
    assert files(work.parent) == before


def test_a_file_that_is_cut_when_the_run_is_killed_goes_too(tmp_path: Path) -> None:
    run_dir, path = RunDir.create(tmp_path / "results", "baseline"), tmp_path / "latest.pt"
    script = (
        BEGINNING + "\nimport torch\nweights = {str(n): torch.zeros(5_000_000) for n in range(40)}\nsave('latest.pt')\n"
    )
    rank = subprocess.Popen([sys.executable, "-c", script, run_dir.path], cwd=tmp_path)
    while not path.exists() or path.stat().st_size < 10_000_000:
        assert rank.poll() is None
        time.sleep(0.001)
    rank.send_signal(signal.SIGKILL)
    rank.wait()
    [told] = [event for event in EventReader(run_dir).read() if isinstance(event, Saved) and event.inode]
    assert told.changed == "" and path.stat().st_size < 40 * 5_000_000 * 4
    undo(run_dir)
    assert not path.exists()


APPENDED = "after something was appended"
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
    APPENDED: """
for name in ("log", "run/metrics.jsonl", "run.bak/metrics.jsonl"):
    with open(name, "a"):
        os.utime(name)  # as writing to it does
os.rename("log", "log.0")
shutil.rmtree("run")
os.remove("run.bak/metrics.jsonl")
""",
    "by writing them anew": """
import json
json.dump({}, open("log", "w"))
Path("run/metrics.jsonl").write_text("its own")
shutil.copyfile("log", "log.1")
with open("run/samples.txt", "wb") as file:
    file.write(b"its own")
Path("new").write_text("its own")
os.remove("new")
assert Path("run/metrics.jsonl").read_text() == "its own" and Path("log").read_text() == "{}"
""",
    "by writing them anew, then moving them": """
Path("log").write_text("its own")
os.replace("log", "log.1")
Path("log").write_text("its own, too")
""",
    "in a folder that nobody but this script may change": """
os.chmod("run", 0o500)
Path("run/metrics.jsonl").read_text()
os.chmod("run", 0o700)
os.remove("run/metrics.jsonl")
""",
    "a backup of a folder with a checkpoint, which is not moved": """
os.rename("trained", "trained.old")
os.makedirs("trained")
open("trained/metrics.csv", "w").write("its own")
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
    "trained/last.pt",
    "trained/metrics.csv",
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
    if way == APPENDED:
        needs_births(tmp_path)
    for _ in range(2):
        run_dir = RunDir.create(tmp_path / "results", "baseline")
        run(run_dir, work, ROTATIONS[way])
        undo(run_dir)
        assert files(work) == before
        assert not run_dir.aside.exists()


RANKS = """
import fcntl
gate, children = os.pipe(), []
for _ in range(8):
    if not (child := os.fork()):
        os.close(gate[1])
        os.read(gate[0], 1)  # until all are there
        with open("x.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            count = int(Path("count").read_text()) + 1
            time.sleep(0.02)
            with open("count", "w") as file:
                file.write(str(count))
        os._exit(0)
    children.append(child)
os.close(gate[1])
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
assert Path("count").read_text() == "8"
"""


def test_a_lock_that_ranks_open_at_once_still_keeps_them_apart(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "x.lock").touch(mode=0o640)
    (work / "count").write_text("0")
    for name in ("x.lock", "count"):
        os.utime(work / name, (1e9, 1e9))
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    script = RANKS + "assert os.stat('x.lock').st_mode & 0o777 == 0o640"
    run(run_dir, work, script)
    undo(run_dir)
    assert files(work) == {"x.lock": "", "count": "0"}


def test_a_file_that_was_kept_and_not_replaced(tmp_path: Path) -> None:
    """The rank was killed between the two."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "log").write_text("the user's")
    os.utime(work / "log", (1e9, 1e9))
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    script = "isolation._known.aside.keep(Path.cwd() / 'log')"
    run(run_dir, work, script)
    undo(run_dir)
    assert files(work) == {"log": "the user's"} and (work / "log").stat().st_nlink == 1
    assert not run_dir.aside.exists() and not (run_dir.path / "replaced").exists()


def test_what_has_come_in_their_place_is_kept_with_the_run(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "log").write_text("the user's")
    os.utime(work / "log", (1e9, 1e9))
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(run_dir, work, "os.remove('log')")
    (work / "log").write_text("another one's")
    undo(run_dir)
    assert files(work) == {"log": "the user's"}
    assert list(files(run_dir.path / "replaced").values()) == ["another one's"]


ANEW = "Path('log').write_text('its own')"


def begin(run_dir: RunDir, work: Path, way: str) -> None:
    """A run that goes on until it is undone, as far as others can see."""
    run(run_dir, work, way, began_ns(run_dir, work, 900))


@pytest.mark.parametrize("way", ["numbered backups", "by writing them anew"])
@pytest.mark.parametrize("ends", ["ab", "ba"])
def test_runs_at_once_move_the_same_files(tmp_path: Path, way: str, ends: str) -> None:
    """As on devices of their own, in one working folder. The last one begins when the first one to end has ended."""
    work = tmp_path / "work"
    for name in ("log", "log.1", "log.2", "run/metrics.jsonl", "run/samples.txt"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(f"the user's {name}")
        os.utime(work / name, (1e9, 1e9))
    before, runs = files(work), {}
    for name in "ab":
        runs[name] = RunDir.create(tmp_path / "results", name)
        begin(runs[name], work, ROTATIONS[way])
    with going_on(runs[ends[1]]):
        undo(runs[ends[0]])
        time.sleep(2)  # what the others have made looks older than the last run
        runs["c"] = RunDir.create(tmp_path / "results", "c")
        begin(runs["c"], work, ROTATIONS[way])
    with going_on(runs["c"]):
        undo(runs[ends[1]])
    undo(runs["c"])
    assert files(work) == before


def test_what_the_user_has_done_since_stays(tmp_path: Path) -> None:
    """Nobody was there when the run ended, as when the machine went down. They trained by hand, then began a worker."""
    work = tmp_path / "work"
    work.mkdir()
    for name in ("log", "kept"):
        (work / name).write_text("the user's")
        os.utime(work / name, (1e9, 1e9))
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    begin(run_dir, work, f"{ANEW}; os.remove('kept')")
    later = time.time() + 100
    (work / "log").write_text("trained by hand")
    os.utime(work / "log", (later, later))
    undo(run_dir, is_late=True)
    assert files(work) == {"log": "trained by hand", "kept": "the user's"}
    assert list(files(run_dir.aside).values()) == ["the user's"]
    (work / "kept").rename(work / "kept.1")
    undo(run_dir)
    assert files(work) == {"log": "trained by hand", "kept.1": "the user's"}


MERGES = """
try:
    os.rename("out", "out.old")  # fails: there is one already
except OSError:
    for name in os.listdir("out"):
        os.replace(f"out/{name}", f"out.old/{name}")
"""
TRIES_FIRST = """
try:
    os.rename("out", "out.old")
except OSError:
    shutil.rmtree("out.old")
    os.rename("out", "out.old")
"""
ROTATES_FOLDERS = """
if os.path.isdir("out"):
    shutil.rmtree("out.old")
    os.rename("out", "out.old")
else:
    os.remove("out.old/log")
"""
MAKES_ANEW = """
shutil.rmtree("out", ignore_errors=True)
if {is_last}:
    os.mkdir("out")
    os.replace("notes", "out/notes")
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("with contextlib.suppress(OSError): os.rename('out', 'out.old')", MERGES),
        (MAKES_ANEW.format(is_last=False), MAKES_ANEW.format(is_last=True)),
        (ROTATES_FOLDERS, ROTATES_FOLDERS),
        (TRIES_FIRST, "os.remove('out.old/log')"),
        (TRIES_FIRST, "os.replace('notes', 'out.old/notes')"),
    ],
    ids=[
        "not moved",
        "made anew",
        "in place of another one",
        "at the second try",
        "at the second try, with another file",
    ],
)
def test_what_runs_at_once_do_to_one_folder_is_undone(tmp_path: Path, first: str, second: str) -> None:
    work = tmp_path / "work"
    for name in ("out/log", "out.old/log", "notes"):
        write_old(work / name, f"the user's {name}")
    before = files(work)
    runs = [RunDir.create(tmp_path / "results", name) for name in ("a", "b")]
    for run_dir, way in zip(runs, (first, second), strict=True):
        begin(run_dir, work, "import contextlib\n" + way)
    with going_on(runs[1]):
        undo(runs[0])
    undo(runs[1])
    assert files(work) == before


def test_whatever_characters_a_name_has(tmp_path: Path) -> None:
    work = tmp_path / "work"
    for name in (b"a\x1b[2J", b"b\r", b"c\xff"):
        path = Path(os.fsdecode(os.fsencode(work) + b"/" + name))
        path.parent.mkdir(exist_ok=True)
        path.write_text("the user's")
        os.utime(path, (1e9, 1e9))
    before = files(work)
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    script = "for name in os.listdir(): os.remove(name)\nsave(os.fsdecode(b'\\x07\\xfe'))"
    run(run_dir, work, script)
    assert len(files(work)) == 1
    undo(run_dir)
    assert files(work) == before


def test_beside_a_working_folder_below_a_hidden_one_and_at_the_top_of_a_file_system(tmp_path: Path) -> None:
    work = tmp_path / ".jobs" / "work"
    work.mkdir(parents=True)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as top:
        users = [Path(top.name), work.parent / "log"]
        for path in users:
            path.write_text("the user's")
            os.utime(path, (1e9, 1e9))
        way = "".join(
            f"Path('new').write_text('its own'); os.system('cp new {p}.new'); os.replace('{p}.new', '{p}')\n"
            for p in users
        )
        run_dir = RunDir.create(tmp_path / "results", "baseline")
        run(run_dir, work, way)
        undo(run_dir)
        assert [path.read_text() for path in users] == ["the user's"] * 2
    assert not Path("/dev/shm/.dsopt-aside").exists()


def test_on_another_file_system_they_wait_in_the_working_folder(tmp_path: Path) -> None:
    """As on a node whose run folder is its own. The script's folder is empty when it believes so."""
    work = tmp_path / "work"
    (work / "run").mkdir(parents=True)
    (work / "run/log").write_text("the user's")
    os.utime(work / "run/log", (1e9, 1e9))
    run_dir = RunDir.create(Path(tempfile.mkdtemp(dir="/dev/shm")), "baseline")
    way = "os.remove('run/log'); assert not os.listdir('run'); os.rmdir('run')"
    try:
        run(run_dir, work, way)
        undo(run_dir)
    finally:
        shutil.rmtree(run_dir.path.parent)
    assert files(work) == {"run/log": "the user's"}
    assert os.listdir(work) == ["run"]
