"""Where it is hard to keep the user's files: closed folders, full disks, other studies, crashes, odd ways to write."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from dsopt.launch.beside import began_ns, meet, runs_beside
from dsopt.launch.undone import undo
from dsopt.protocol import kept
from dsopt.protocol.machine_folder import machine_folder
from dsopt.protocol.private import make_private
from dsopt.protocol.run_dir import RunDir
from tests.probe.rank import files, needs_births, run, write_old

COPIES = "by copies with their dates, twice"
WAYS = {
    "without locks": """
import fcntl
def flock(*_): raise OSError(38, "no locks here")
fcntl.flock = flock
open("log", "w").write("of the run")
""",
    "on a disk that is full for the run's own files": """
class Full:
    def write(self, text): raise OSError(28, "full")
writer._file = Full()
try:
    open("log", "w")
except OSError as error:
    assert error.errno == 28
else:
    raise AssertionError
""",
    "by what other modules have of `open`": """
import bz2
bz2.open("log", "wb").close()
""",
    "by names in bytes": """
os.remove(b"log")
open("new", "w").write("of the run")
os.replace(b"new", b"kept/log")
shutil.rmtree(b"kept")
""",
    "by appending": """
open("log", "a").write("of the run")
with open("kept/log", "r+") as file:
    assert file.read() == "the user's"
    file.write("of the run")
open("log", "w+").close()
""",
    "by appending and moving": """
open("log", "a").write("of the run")
os.replace("log", "log.1")
os.rename("log.1", "log.2")
""",
    "by removing what looks like a checkpoint, and making it": """
os.remove("model.pkl")
open("model.pkl", "x").write("of the run")
assert open("model.pkl").read() == "of the run"
""",
    COPIES: """
for _ in range(2):
    shutil.copytree("kept", "scratch")
    shutil.rmtree("scratch")
with tempfile.TemporaryDirectory(dir=".") as folder:
    shutil.copy2("model.pkl", folder)
assert not os.path.exists(folder)
""",
    "with a file where a folder was, and a long name": """
os.remove("kept/log")
os.rmdir("kept")
open("kept", "w").write("of the run")
for name in os.listdir():
    if name.startswith("n"):
        os.remove(name)
        open(name, "w").write("of the run")
""",
    "by `os.open` and `os.truncate`": """
descriptor = os.open("log", os.O_WRONLY | os.O_APPEND)
os.write(descriptor, b"of the run")
os.close(descriptor)
os.close(os.open("kept/log", os.O_RDWR | os.O_CREAT | os.O_TRUNC))
os.truncate("model.pkl", 2)
assert Path("log").read_text() == "the user'sof the run" and Path("model.pkl").read_text() == "th"
Path("log").touch()
""",
    "with a private opener": """
open(os.path.abspath("log"), "w", opener=lambda path, flags: os.open(path, flags, 0o600)).write("of the run")
""",
    "by wrong modes, and in files that may only be read": """
for mode, more in (("rw", {}), ("wb", {"encoding": "utf8"}), ("w+x", {})):
    try:
        open("log", mode, **more)
    except ValueError:
        assert open("log").read() == "the user's"
    else:
        raise AssertionError(mode)
""",
    "by links and moves of what is as old": """
os.remove("log")
os.link("model.pkl", "log")
shutil.rmtree("kept")
os.mkdir("kept")
os.system("mv " + "n" * 250 + " kept/log; cp kept/log " + "n" * 250)
""",
    "from a folder that was removed": """
folder, here = tempfile.mkdtemp(), os.getcwd()
os.chdir(folder)
os.rmdir(folder)
os.remove(here + "/log")
""",
    "in the run's own folder, where it has moved them": """
own = run_dir.path / "own"
own.mkdir()
for _ in range(2):
    if os.path.exists("log"):
        shutil.move("log", own / "log")
    open(own / "log", "w").write("of the run")
shutil.move("kept", own)
shutil.rmtree(own)
""",
    "file by file, with the run's own": """
for folder in (run_dir.path, Path("kept")):
    for path in folder.iterdir():
        os.remove(path) if path.is_file() else shutil.rmtree(path)
    os.rmdir(folder)
os.makedirs(run_dir.path)
assert run_dir.mark.exists() and run_dir.events(0).exists()
""",
    "with moves, cuts and copies of the run's events": """
import torch
torch.save(weights, "log")
os.remove("model.pkl")
events = run_dir.events(0)
shutil.move(events, "arch")
os.rename("other", events) if os.path.exists("other") else None
for act in (lambda: events.write_text(""), lambda: os.truncate(events, 0), lambda: shutil.copy("kept/log", events)):
    try:
        act()
    except PermissionError as error:
        assert "dsopt needs it" in str(error)
    else:
        raise AssertionError
assert events.exists()
""",
    "by a second name, for a moment": """
os.link("log", "log.lnk")
os.unlink("log.lnk")
os.link("kept/log", "lock")
os.rename("lock", "lock.1")
os.remove("lock.1")
assert open("log").read() == "the user's"
""",
    "where it was given a further name, which something else has since": """
os.link("log", "b")
os.replace("model.pkl.csv", "b")
os.remove("b")
os.makedirs("d", exist_ok=True)
os.link("log", "d/b")
os.rename("d", "e")
os.makedirs("d", exist_ok=True)
os.rename("kept/log", "d/b")
os.remove("d/b")
os.remove("e/b")
os.rmdir("d")
os.rmdir("e")
""",
    "in a handler of a signal, and in threads": """
import signal, threading
signal.signal(signal.SIGUSR1, lambda *_: open("kept/log", "w").close())
keep = isolation._known.aside.keep
def interrupted(path):
    isolation._known.aside.keep = keep
    signal.raise_signal(signal.SIGUSR1)
    return keep(path)
isolation._known.aside.keep = interrupted
open("log", "w").close()
threads = [threading.Thread(target=lambda: open("model.pkl", "w").write("of the run")) for _ in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_the_users_is_lost(tmp_path: Path, way: str) -> None:
    work = tmp_path / "work"
    if way == COPIES:
        needs_births(tmp_path)
    for name in ("log", "kept/log", "model.pkl", "model.pkl.csv", "n" * 250):
        write_old(work / name)
    before = files(work)
    for _ in range(2):
        run_dir = RunDir.create(tmp_path / "results", "r")
        run(run_dir, work, WAYS[way])
        undo(run_dir)
        assert files(work) == before
        assert run_dir.undone.exists() and not run_dir.aside.exists()


REMADE = {
    "folders": "os.makedirs('out/deep'); Path('out/deep/more').mkdir(parents=True)",
    "files": "os.mkdir('out'); open('out/log', 'x').write('new'); open('out/more', 'a').write('new'); "
    "assert open('out/more').read() == open('out/log').read() == 'new'",
    "links": "os.mkdir('out'); os.symlink('x', 'out/log'); Path('a').touch(); os.link('a', 'out/more')",
    "a folder where a file was": "os.makedirs('out/log'); os.remove('out.pt'); os.mkdir('out.pt'); os.rmdir('out.pt')",
    "what is then appended to": "os.mkdir('out'); Path('notes').write_text('notes'); os.rename('notes', 'out/log'); "
    "open('out/log', 'a').write(' more'); assert open('out/log').read() == 'notes more'; "
    "open('out/more', 'ba').write(b'new'); assert open('out/more').read() == 'new'",
    "folders that come from elsewhere": "os.mkdir('src'); os.mkdir('out'); os.rename('src', 'out/deep')",
    "copies": "os.makedirs('src/deep'); open('src/log', 'w').write('new'); os.mkdir('out'); "
    "shutil.copytree('src', 'out', dirs_exist_ok=True); assert open('out/log').read() == 'new'",
}


@pytest.mark.parametrize("way", REMADE)
def test_what_was_removed_with_a_checkpoint_can_be_made_anew(tmp_path: Path, way: str) -> None:
    needs_births(tmp_path)
    work = tmp_path / "work"
    for name in ("out/model.pt", "out/log", "out/more", "out/deep/log", "out.pt"):
        write_old(work / name)
    before = files(work)
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, f"shutil.rmtree('out')\n{REMADE[way]}")
    undo(run_dir)
    assert {name: text for name, text in files(work).items() if name.startswith("out")} == before


def test_a_folder_that_is_made_a_second_time_is_there(tmp_path: Path) -> None:
    work = tmp_path / "work"
    write_old(work / "out" / "model.pt")
    script = """
shutil.rmtree("out")
for name in ("out", "out/lock"):
    os.mkdir(name)
    try:
        os.mkdir(name)
    except FileExistsError:
        print("there")
"""
    assert run(RunDir.create(tmp_path / "results", "r"), work, script) == "there\n" * 2


def test_the_best_checkpoint_may_be_another_name_of_the_last(tmp_path: Path) -> None:
    work = tmp_path / "work"
    for name in ("last.pt", "best.pt"):
        write_old(work / name)
    script = """
for _ in range(2):
    save("last.pt")
    os.remove("best.pt")
    os.link("last.pt", "best.pt")
    os.link("last.pt", "best.pt.tmp")
    os.replace("best.pt.tmp", "best.pt")  # which leaves a second name of the same file
    os.remove("best.pt.tmp")
os.environ["TMPDIR"] = os.path.realpath(".")
assert os.path.dirname(tempfile.mkdtemp()) == os.getcwd()
"""
    before, run_dir = files(work), RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, script)
    undo(run_dir)
    assert files(work) == before


@pytest.mark.parametrize(
    "script",
    [
        "shutil.rmtree('out'); os.mkdir('out'); save('out/model')",
        "shutil.rmtree('out'); os.mkdir('out'); os.rename('log', 'out/log')",
        "os.rename('out', 'out.old'); os.mkdir('out'); os.rename('log', 'out/log')",
    ],
)
def test_a_folder_comes_back_also_where_nobody_was_there_when_the_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """What dsopt takes out of the new folder does not make that the user's."""
    needs_births(tmp_path)
    work = tmp_path / "work"
    for name in ("out/metrics.csv", "log"):
        write_old(work / name)
    before = files(work)
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, script)
    monkeypatch.setattr("dsopt.launch.undone._SAVING_NS", 0)
    time.sleep(0.1)
    undo(run_dir, is_late=True)
    assert files(work) == before
    assert run_dir.undone.exists() and not run_dir.aside.exists()


def test_a_file_of_the_users_where_a_folder_was_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker died, and the user has gone on."""
    work = tmp_path / "work"
    write_old(work / "out" / "log")
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, "os.remove('out/log')")
    monkeypatch.setattr("dsopt.launch.undone._SAVING_NS", 0)
    time.sleep(0.1)
    (work / "out").rmdir()
    (work / "out").write_text("newer")
    undo(run_dir, is_late=True)
    assert files(work) == {"out": "newer"}
    assert run_dir.undone.exists()
    assert len(list(run_dir.aside.iterdir())) == 1  # `dsopt doctor` names it


def test_a_folder_that_the_user_puts_there_later_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    for name in ("data/a", "backup/b"):
        write_old(work / name)
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, "shutil.rmtree('data'); os.mkdir('data')")
    monkeypatch.setattr("dsopt.launch.undone._SAVING_NS", 0)
    time.sleep(0.1)
    (work / "data").rmdir()
    (work / "backup").rename(work / "data")
    undo(run_dir, is_late=True)
    assert files(work) == {"data/b": "the user's"}


def test_runs_beside_each_other_in_a_folder_of_any_name(tmp_path: Path) -> None:
    names = [os.fsdecode(b"\xff\x85"), "a\u2028b"]
    one, other = (RunDir.create(tmp_path / name, "r") for name in names)
    meet(one, other)
    assert [run.path for run in runs_beside(one)] == [other.path]
    assert [run.path for run in runs_beside(other)] == [one.path]


@pytest.mark.parametrize("variables", [{"TORCH_HOME": "."}, {"HF_HOME": "."}])
def test_a_working_folder_is_no_cache_of_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    work = tmp_path / "torchinductor_bench"
    names = ("checkpoints/log", "datasets/log", "log")
    for name in names:
        write_old(work / name)
    for name in variables:
        monkeypatch.setenv(name, str(work))
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, f"for name in {names}: open(name, 'w').write('of the run')")
    undo(run_dir)
    assert files(work) == dict.fromkeys(names, "the user's")


def test_a_hard_link_to_what_a_run_has_saved_goes_with_it(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, "save('ck.pt'); os.link('ck.pt', 'best'); save('ck2'); os.link('ck2', 'last'); os.remove('ck2')")
    undo(run_dir)
    assert files(work) == {}


def test_what_torch_writes_in_c_replaces_nothing(tmp_path: Path) -> None:
    work = tmp_path / "work"
    for name in ("script.pt", "trace.pt", "export.pt2"):
        write_old(work / name)
    script = """
import torch
model = torch.nn.Linear(2, 2)
torch.jit.script(model).save("script.pt")
torch.jit.trace(model, torch.ones(1, 2)).save("trace.pt")
torch.export.save(torch.export.export(model, (torch.ones(1, 2),)), "export.pt2")
"""
    before, run_dir = files(work), RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, script)
    undo(run_dir)
    assert files(work) == before


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, which only root may")
def test_a_file_in_a_folder_that_is_closed_to_us() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # others may look at nothing in pytest's
        Path(folder).chmod(0o755)
        work = Path(folder, "work")
        write_old(work / "log")
        (work / "log").chmod(0o666)
        number = (work / "log").stat().st_ino
        run_dir = RunDir.create(Path(folder, "results"), "r")
        for opened in (run_dir.path, run_dir.path.parent):
            opened.chmod(0o777)
        run(run_dir, work, "os.seteuid(1234); open('log', 'w').write('of the run')")
        assert files(work) == {"log": "of the run"}
        undo(run_dir)
        assert files(work) == {"log": "the user's"} and (work / "log").stat().st_ino == number
        assert (work / "log").stat().st_mtime == 1e9
        assert not run_dir.aside.exists()


def test_files_that_were_made_just_before(tmp_path: Path) -> None:
    """As with `python prepare.py && dsopt tune …`."""
    needs_births(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    for name in ("log", "data.csv", "snap"):
        (work / name).write_text("the user's")
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, "open('log', 'a').write('x'); open('data.csv', 'w').write('x'); os.remove('snap')")
    undo(run_dir)
    assert files(work) == dict.fromkeys(("log", "data.csv", "snap"), "the user's")


def test_what_the_script_makes_is_its_own_to_move_and_remove(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    run_dir = RunDir.create(tmp_path / "results", "r")
    script = """
for suffix in ("npz", "tar", "pkl", "bin"):
    for content in ("first", "second"):
        open(f"cache.tmp.{suffix}", "w").write(content)
        os.replace(f"cache.tmp.{suffix}", f"cache.{suffix}")
        assert open(f"cache.{suffix}").read() == content
    os.remove(f"cache.{suffix}")
"""
    run(run_dir, work, script)
    assert files(work) == {}


def test_functions_of_files_are_still_what_they_were(tmp_path: Path) -> None:
    script = """
import functools, inspect, pickle
for function in (open, os.remove, os.unlink, os.replace, os.rename, os.mkdir, os.symlink, shutil.copyfile):
    assert pickle.loads(pickle.dumps(function)) is function
class Reader:
    way = open
    def read(self): return self.way("x").read()
open("x", "w").write("text")
assert Reader().read() == functools.partial(open, "x")().read() == "text"
assert os.unlink in os.supports_dir_fd and list(inspect.signature(open).parameters)[0] == "file"
shutil.rmtree("missing", ignore_errors=True)
"""
    work = tmp_path / "work"
    work.mkdir()
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, script)


def test_atomic_saves_of_the_scripts_own(tmp_path: Path) -> None:
    script = """
descriptor, temporary = tempfile.mkstemp(suffix=".npz", dir=".")
with os.fdopen(descriptor, "wb") as file:
    file.write(b"made")
os.replace(temporary, "a.npz")
with tempfile.NamedTemporaryFile(dir=".", suffix=".pkl", delete=False) as file:
    file.write(b"made")
os.replace(file.name, "b.pkl")
os.system("printf made > c.tmp.tar")
os.replace("c.tmp.tar", "c.tar")
os.system("printf again > c.tmp.tar")
os.replace("c.tmp.tar", "c.tar")
"""
    work = tmp_path / "work"
    work.mkdir()
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, script)
    assert files(work) == {"a.npz": "made", "b.pkl": "made", "c.tar": "again"}


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a file, which only root may")
def test_a_file_that_is_a_mount_and_two_runs_that_write_to_it(tmp_path: Path) -> None:
    """As with `docker run -v log:/app/log`: nothing can be put in its place."""
    needs_births(tmp_path)
    work, outside = tmp_path / "work", tmp_path / "outside"
    write_old(work / "log")
    write_old(outside)
    if subprocess.run(["mount", "--bind", outside, work / "log"]).returncode:
        pytest.skip("nothing can be mounted here")
    time.sleep(2.2)  # once a run has written to it, only its birth tells that it is the user's
    try:
        runs = [RunDir.create(tmp_path / "results", "r") for _ in range(2)]
        began = began_ns(runs[1], work, 900)
        for one in runs:
            run(one, work, "for _ in range(3):\n with open('log', 'a') as file: file.write('of a run')", began)
            assert len(list(one.aside.iterdir())) == 1
        for one in runs:
            undo(one)
            assert (work / "log").read_text() == "the user's"
    finally:
        subprocess.run(["umount", work / "log"], check=True)


OVERLAY = """
import os, subprocess, sys
from pathlib import Path
folder = Path(sys.argv[1])
def mount(*words):
    if subprocess.run(["mount", "-t", *words]).returncode:
        sys.exit(77)
mount("tmpfs", "none", folder)
for name in ("lower", "upper", "of-it", "work"):
    (folder / name).mkdir()
(folder / "lower/log").write_text("the user's")
os.utime(folder / "lower/log", (1e9, 1e9))
places = "lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/of-it".format(folder)
mount("overlay", "none", "-o", places, folder / "work")
from dsopt.launch.undone import undo
from dsopt.protocol import kept
from dsopt.protocol.private import make_private
from dsopt.protocol.run_dir import RunDir
from tests.probe.rank import files, run
for way in (
    "os.chmod('log', 0o600); open('log', 'w').write('of the run')",
    "os.rename('log', 'log.1'); open('log.1', 'a').write('of the run')",
    "os.rename('log', 'log.1'); os.remove('log.1')",
    "Path('log').touch(); open('log', 'w').write('of the run')",
    "os.utime('log'); os.remove('log')",
):
    os.utime(folder / "work/log", (1e9, 1e9))
    run_dir = RunDir.create(folder / "results", "r")
    run(run_dir, folder / "work", way)
    undo(run_dir)
    assert files(folder / "work") == {"log": "the user's"}, way
"""


FORKS = """
import os, signal, threading, time
from dsopt.protocol.alone import alone
held = threading.Event()
def hold():
    with alone(1):
        held.set()
        time.sleep(60)
threading.Thread(target=hold, daemon=True).start()
held.wait()
if not (child := os.fork()):
    os.close(1)
    time.sleep(60)
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_forked_process_does_not_keep_the_lock_of_its_parent() -> None:
    """Such as a worker of a data loader, while its rank is killed."""
    killed = subprocess.run([sys.executable, "-c", FORKS], stdout=subprocess.PIPE, text=True)
    try:
        with (machine_folder() / "files.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(int(killed.stdout), signal.SIGKILL)


def test_what_is_known_of_files_takes_bounded_room_and_half_a_line_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSOPT_DEVICE_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(kept, "_MOST", 3)
    monkeypatch.setattr(kept, "_MOST_BYTES", 1000)
    make_private(tmp_path / "locks")
    known, paths = tmp_path / "locks" / kept._RETURNED, [tmp_path / str(number) for number in range(20)]
    for path in paths:
        path.touch()
        kept.note_returned(path)
    assert kept.is_returned(paths[-1], 0) and not kept.is_returned(paths[0], 0)
    assert known.stat().st_size < 2000
    with known.open("a") as file:
        file.write('["half')
    kept.note_returned(paths[0])
    assert kept.is_returned(paths[0], 0) and kept.is_returned(paths[-1], 0)


def test_what_others_can_write_to_is_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user may have made the folder of this machine's locks before: what is in it would get into files."""
    monkeypatch.setenv("DSOPT_DEVICE_LOCKS", str(tmp_path / "locks"))
    make_private(tmp_path / "locks")
    log, copy = tmp_path / "log", tmp_path / "copy"
    for path in (log, copy):
        path.write_text("the user's")
    kept.note_copy(log, copy)
    assert kept.copy_of(log) == copy
    (tmp_path / "locks").chmod(0o777)
    assert kept.copy_of(log) is None


@pytest.mark.skipif(os.getuid() != 0, reason="mounts an overlay, which only root may")
def test_files_of_an_image(tmp_path: Path) -> None:
    """On the overlay of a container, a file of its image is made anew when its mode or its name changes."""
    if subprocess.run(["unshare", "-m", "true"]).returncode:
        pytest.skip("no mounts of its own here")
    done = subprocess.run(["unshare", "-m", sys.executable, "-c", OVERLAY, tmp_path], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("nothing can be mounted here")
    assert done.returncode == 0, done.stderr


APPENDS = """
import subprocess
open("log", "w").write("header")
subprocess.run([sys.executable, "-c", "import sys; from dsopt.launch.undone import undo; "
    "from dsopt.protocol.run_dir import RunDir; undo(RunDir(sys.argv[1]))", OTHER], check=True)
for _ in range(3):
    with open("log", "a") as file:
        file.write("of the run")
"""


def test_a_run_goes_on_to_append_after_another_has_ended(tmp_path: Path) -> None:
    """It believes to have begun the file, in whose place the user's has come back."""
    work, runs = tmp_path / "work", []
    write_old(work / "log")
    for script in ("open('log', 'w').write('of a run')", APPENDS):
        runs.append(RunDir.create(tmp_path / "results", "r"))
        run(runs[-1], work, f"OTHER = {str(runs[0].path)!r}\n" + script, began_ns(runs[-1], work, 900))
    undo(runs[1])
    assert files(work) == {"log": "the user's"}


def test_two_studies_in_one_working_folder(tmp_path: Path) -> None:
    """The second one sees no run of the first, which has ended and is not undone: it takes its file for the user's."""
    work, runs = tmp_path / "work", []
    write_old(work / "log")
    for study in "ab":
        runs.append(RunDir.create(tmp_path / study, "r"))
        run(runs[-1], work, "open('log', 'w').write('of a run')", began_ns(runs[-1], work, 900))
        time.sleep(2.1)
    undo(runs[0])
    undo(runs[1])
    assert files(work) == {"log": "the user's"}


def test_two_that_undo_a_run_at_once(tmp_path: Path) -> None:
    """As a guard and a worker, or the workers of two studies."""
    work = tmp_path / "work"
    for number in range(300):
        write_old(work / f"log{number}")
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, "for name in os.listdir():\n os.remove(name)\n open(name, 'w').write('of the run')")
    children = []
    for _ in range(3):
        if not (child := os.fork()):
            undo(run_dir, is_late=True)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
    assert set(files(work).values()) == {"the user's"} and len(files(work)) == 300
    assert "the user's" not in files(run_dir.replaced).values()


def test_what_the_user_has_done_in_a_folder_since_a_crash_stays(tmp_path: Path) -> None:
    work = tmp_path / "work"
    write_old(work / "run/metrics.jsonl")
    write_old(work / "log")
    write_old(work / "log.bak", "the good one")
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, "shutil.rmtree('run'); os.mkdir('run'); open('log', 'w').write('of the run')")
    for path in (run_dir.mark, *run_dir.all_events()):
        os.utime(path, (time.time() - 100,) * 2)
    (work / "run/metrics.jsonl").write_text("an hour of training")
    os.replace(work / "log.bak", work / "log")  # with the date that it had
    undo(run_dir, is_late=True)
    assert files(work) == {"run/metrics.jsonl": "an hour of training", "log": "the good one"}


def test_a_run_of_which_nothing_is_seen_began_before_nobody(tmp_path: Path) -> None:
    """It crashed with its machine, and nobody undid it: what the user has made since is the user's."""
    work, crashed = tmp_path / "work", RunDir.create(tmp_path / "results", "r")
    work.mkdir()
    os.utime(crashed.mark, (time.time() - 100,) * 2)
    own = RunDir.create(tmp_path / "results", "r")
    assert began_ns(own, work, 900) == own.mark.stat().st_mtime_ns
    crashed.stdout.write_text("it is alive")
    assert began_ns(own, work, 900) == crashed.mark.stat().st_mtime_ns


def test_a_run_of_another_study_in_the_same_folder_is_seen(tmp_path: Path) -> None:
    work, other, own = tmp_path / "work", RunDir.create(tmp_path / "a", "r"), RunDir.create(tmp_path / "b", "r")
    work.mkdir()
    os.utime(other.mark, (time.time() - 100,) * 2)
    environment = {**os.environ, "DSOPT_RUN_DIR": str(other.path)}
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=work, env=environment)
    try:
        assert began_ns(own, work, 900) == other.mark.stat().st_mtime_ns
        assert began_ns(own, tmp_path, 900) == own.mark.stat().st_mtime_ns
    finally:
        process.communicate(b"\n")
