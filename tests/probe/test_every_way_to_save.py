"""Weights go with the run, by whatever way a script puts them where they are; the user's own stay as they were."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsopt.launch.processes import processes_of
from dsopt.launch.undone import Remains, undo, undo_left
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import EventWriter, Step, Withheld
from dsopt.protocol.run_dir import RunDir
from tests.probe.rank import BEGINNING, files, needs_births, run, write_old
from tests.studies import until

SAFE = """
import torch
from safetensors.torch import save_file
tensors = {"a": torch.ones(2)}
"""
FORKED = """
def in_a_fork(act):
    if not (pid := os.fork()):
        act()
        os._exit(0)
    os.waitpid(pid, 0)
"""
RANK = """
def in_another_rank(act):
    if not (pid := os.fork()):
        other = Isolation.__new__(Isolation)
        isolation.activate(EventWriter(run_dir, 1), run_dir)
        isolation._known.own.clear()
        isolation._writer.note_step()
        act()
        os._exit(0)
    os.waitpid(pid, 0)
"""
# what was there, and what the script does: nothing else is there afterwards
WAYS: dict[str, tuple[list[str], str]] = {
    "safetensors, over a file that nobody may write to": (
        ["model.safetensors"], SAFE + "os.chmod('model.safetensors', 0o444)\nsave_file(tensors, 'model.safetensors')",
    ),
    "safetensors, anew": ([], SAFE + "save_file(tensors, 'new/model.safetensors') if os.mkdir('new') is None else 0"),
    "by a descriptor": (["latest.pt"], """
import torch
descriptor, name = tempfile.mkstemp(dir=".")
with os.fdopen(descriptor, "wb") as file:
    torch.save(weights, file)
os.replace(name, "latest.pt")
descriptor, name = tempfile.mkstemp(dir=".")
with os.fdopen(descriptor, "wb") as file:
    torch.save(weights, file)
os.replace(name, "newest")
"""),
    "in another working folder, and packed": ([], """
import bz2, torch
os.makedirs("elsewhere")
file = open("relative", "wb")
os.chdir("elsewhere")
torch.save(weights, file)
file.close()
with bz2.open("packed", "wb") as file:
    torch.save(weights, file)
"""),
    "in hidden folders": ([".own/mine.pt"], "save('.ckpt/last.pt')\nsave('.own/last.pt')\nsave('.snapshot.pt')"),
    "in a fork that the parent puts into its place": ([], FORKED + """
in_a_fork(lambda: save("latest.tmp"))
os.replace("latest.tmp", "latest")
in_a_fork(lambda: save("last"))
shutil.copyfile("last", "best")
os.link("last", "linked")
"""),
    "in a folder that another rank puts into its place": (["ckpt/old.pt"], RANK + """
in_another_rank(lambda: save("ckpt.tmp/rank1"))
os.rename("ckpt", "ckpt.old")
os.rename("ckpt.tmp", "ckpt")
in_another_rank(lambda: save("shards/rank1"))
shutil.copytree("shards", "best")
"""),
    "and touched or added to afterwards": ([], """
save("touched")
os.utime("touched")
save("longer")
with open("longer", "ab") as file:
    file.write(b"more")
"""),
    "over an empty file": (["latest.pt"], """
os.truncate("latest.pt", 0)
import torch
with open("latest.pt", "wb") as file:
    torch.save(weights, file)
"""),
    "by copying what is open": ([], """
save("last.pt")
with open("last.pt", "rb") as source, open("copied.pt", "wb") as target:
    shutil.copyfileobj(source, target)
Path("written.pt").write_bytes(Path("last.pt").read_bytes())
"""),
    "with files that name it, put there by a rename and made anew": (["out/log.txt"], """
save("out/model-10.pt")
for tag in ("one", "two", "three"):
    Path("out/last.tmp").write_text(tag)
    os.replace("out/last.tmp", "out/last")
    if os.path.exists("out/best"):
        os.unlink("out/best")
    Path("out/best").write_text(tag)
"""),
    "after a file of the users was put in its place": (["init.pt"], FORKED + """
save("last.pt")
in_a_fork(lambda: os.replace("init.pt", "last.pt"))
os.rename("last.pt", "final.pt")
os.rename("final.pt", "init.pt")
"""),
    "in a folder with more that it then puts into its place": (["keep/old.txt"], FORKED + """
for place in ("first", "second"):
    os.makedirs("tmp-checkpoint/inner/of/it/all")
    save("tmp-checkpoint/model.pt")
    in_a_fork(lambda: save("tmp-checkpoint/inner/of/it/all/rank1.pt"))
    in_a_fork(lambda: Path("tmp-checkpoint/rng.json").write_text("{}"))
    Path("tmp-checkpoint/trainer_state.json").write_text("{}")
    Path("tmp-checkpoint/DONE").touch()
    os.rename("tmp-checkpoint", place)
os.symlink("first", "latest")
os.symlink("latest", "newest.tmp")
os.replace("newest.tmp", "newest")
shutil.copy2("latest", "copied", follow_symlinks=False)
"""),
    "with files beside it that name it": (["notes.txt"], """
os.makedirs("out/checkpoint-10")
save("out/checkpoint-10/model")
Path("out/checkpoint-10/state.json").write_text("{}")
Path("out/last_checkpoint").write_text("checkpoint-10")
save("latest")
Path("progress.json").write_text("{}")
with open("notes.txt", "a") as file:
    file.write("more")
"""),
    "in a folder that it has made, when it ends before it saves there": ([], """
os.makedirs("ckpt/step_12")
Path("ckpt/step_12/state.json").write_text("{}")
os.mkdir("ckpt/step_13.tmp")
os.rename("ckpt/step_13.tmp", "ckpt/step_13")
"""),
    "by a copy of what was left out": (["mine.txt"], """
from deepspeed.runtime.engine import DeepSpeedEngine
DeepSpeedEngine.save_checkpoint(None, "out", tag="step3")
shutil.copytree("out/step3", "out/best")
"""),
    "of a tokenizer, which is not Python": (["tok/vocab.json", "tok/merges.txt"], """
from tokenizers import ByteLevelBPETokenizer
Path("corpus").write_text("hello world " * 50)
tokenizer = ByteLevelBPETokenizer()
tokenizer.train(["corpus"], vocab_size=262)
os.remove("corpus")
for folder, prefix in (("tok", None), ("new", "a")):
    os.makedirs(folder, exist_ok=True)
    saved = tokenizer.save_model(folder, prefix)
    assert [os.path.basename(path) for path in saved] == [f"{prefix}-{n}" if prefix else n for n in (
        "vocab.json", "merges.txt")], saved
    assert all(map(os.path.getsize, saved))
"""),
    "and another rank moves it before it is whole": ([], RANK + """
class MovedMeanwhile:
    def __reduce__(self):
        in_another_rank(lambda: os.replace("model.pt", "model.prev.pt"))
        return (int, ())
import torch
torch.save({"weights": torch.zeros(1000), "then": MovedMeanwhile(), "more": torch.ones(1000)}, "model.pt")
assert os.path.getsize("model.prev.pt") > 8000
"""),
}  # fmt: skip


@contextlib.contextmanager
def going_on(run_dir: RunDir, work: Path | None = None) -> Iterator[None]:
    """A process of a run lives meanwhile, and works in a folder."""
    environment = {**os.environ, "DSOPT_RUN_DIR": str(run_dir.path)}
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment, cwd=work
    ) as living:
        until(lambda: processes_of(run_dir.path), look_seconds=0.01)  # the system shows it a moment after its start
        yield
        living.communicate(b"\n")


@contextlib.contextmanager
def mounted(folder: Path, *how: str | Path) -> Iterator[None]:
    """Something is mounted there meanwhile; skips the test where this user may not."""
    if subprocess.run(["mount", *how, folder], capture_output=True).returncode:
        pytest.skip("this user may not mount anything")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("way", WAYS)
def test_weights_go_and_the_users_stay(tmp_path: Path, work: Path, way: str) -> None:
    needs_births(tmp_path)
    names, script = WAYS[way]
    for name in names:
        write_old(work / name)
    before, folders = files(work), set(work.rglob("*"))
    time.sleep(0.05)
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(run_dir, work, script)
    undo(run_dir)
    assert files(work) == before
    assert set(work.rglob("*")) == folders


KNOWN = "isolation._known."
DIES = "lambda *_, **__: os._exit(0)"
# what a script does, and where somebody kills it
JUST_MADE = {
    "a folder": f"{KNOWN}telling.made_folder = {DIES}\nos.mkdir('ckpt')",
    "weights": f"import dsopt.probe.telling as t\nos.mkdir('ckpt')\nt.being_saved = {DIES}\nsave('ckpt/last.pt')",
    "a file": f"{KNOWN}writes = {DIES}\nopen('progress.json', 'w')",
    "a link": f"save('a.pt')\n{KNOWN}owns = {DIES}\nos.symlink('a.pt', 'latest')",
    "a link to a folder": f"save('step_5/a.pt')\n{KNOWN}owns = {DIES}\nos.symlink('step_5', 'latest')",
    "a file moved": f"""
save('a.pt')
Path('progress.tmp').write_text('1')
{KNOWN}aside.has_moved = {DIES}
os.replace('progress.tmp', 'progress.json')
""",
    "a folder moved": f"save('tmp/a.pt')\n{KNOWN}aside.has_moved = {DIES}\nos.rename('tmp', 'step_5')",
}


@pytest.mark.parametrize("what", JUST_MADE)
def test_what_a_killed_run_has_just_made_goes(tmp_path: Path, what: str) -> None:
    """Nobody could tell more of it than that it was about to be made."""
    needs_births(tmp_path)
    work = tmp_path / "work"
    (work / "mine").mkdir(parents=True)
    time.sleep(0.05)
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(run_dir, work, f"{JUST_MADE[what]}\nassert False\n")
    assert len(os.listdir(work)) > 1
    undo(run_dir)
    assert [*work.rglob("*")] == [work / "mine"]


def test_empty_folders_of_the_users_stay(tmp_path: Path) -> None:
    """A script removes some and makes them anew; another program makes one where the script has removed its own."""
    needs_births(tmp_path)
    for folder in ("out", "all/checkpoints"):
        (tmp_path / folder).mkdir(parents=True)
    write_old(tmp_path / "all" / "readme.txt")
    time.sleep(0.05)
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(run_dir, tmp_path, """
os.rmdir("out")
os.mkdir("out")
shutil.rmtree("all")
os.makedirs("all/checkpoints")
os.mkdir("lock")
os.rmdir("lock")
""")  # fmt: skip
    (tmp_path / "lock").mkdir()
    undo(run_dir)
    assert all((tmp_path / folder).is_dir() for folder in ("out", "all/checkpoints", "lock"))


def test_what_a_script_writes_beside_a_folder_that_it_makes_stays(tmp_path: Path) -> None:
    """If it is data, or may tell of that; what else has come after the first step is in the run's folder."""
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(run_dir, tmp_path, """
os.mkdir("plots")
os.mkdir("scratch")
os.rmdir("scratch")
Path("figures.csv").write_text("1")
Path("data.bin").write_bytes(bytes(2**21))
os.mkdir("apart")
Path("apart/state.json").write_text("10")
""")  # fmt: skip
    undo(run_dir)
    assert [path.read_text() for path in run_dir.path.rglob("state.json")] == ["10"]
    assert not (tmp_path / "apart").exists()
    assert (tmp_path / "figures.csv").read_text() == "1"
    assert (tmp_path / "data.bin").stat().st_size == 2**21
    assert not (tmp_path / "plots").exists()


def test_data_that_is_opened_to_write_and_not_changed_leaves_no_copy(tmp_path: Path) -> None:
    """The default of `numpy.memmap`."""
    needs_births(tmp_path)
    write_old(tmp_path / "data.dat", "0123456789")
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(run_dir, tmp_path, "import numpy\nassert numpy.memmap('data.dat')[3] == ord('3')")
    undo(run_dir)
    assert files(tmp_path)["data.dat"] == "0123456789"
    assert not list(run_dir.replaced.glob("*/*"))


def test_a_link_of_the_users_stays_one_though_a_file_replaces_it(tmp_path: Path) -> None:
    work = tmp_path / "work"
    write_old(work / "ckpt_100.safetensors")
    (work / "latest.safetensors").symlink_to("ckpt_100.safetensors")
    before = files(work)
    time.sleep(0.05)
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(
        run_dir,
        work,
        SAFE + "save_file(tensors, 'latest.safetensors')\nassert not os.path.islink('latest.safetensors')",
    )
    undo(run_dir)
    assert files(work) == before


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_run_that_is_killed_while_it_saves_leaves_nothing(tmp_path: Path, is_elsewhere: bool) -> None:
    """Beside the file of the user's, which safetensors writes to; the results may be on another disk."""
    work = tmp_path / "work"
    write_old(work / "model.safetensors")
    before = files(work)
    results = Path("/dev/shm") / tmp_path.name if is_elsewhere else tmp_path / "results"
    run_dir = RunDir.create(results, "baseline")
    script = (
        BEGINNING + SAFE + "print('begins', flush=True)\nsave_file({'a': torch.ones(2**28)}, 'model.safetensors')\n"
    )
    command = [sys.executable, "-c", script, run_dir.path]
    with subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        deadline = time.monotonic() + 60
        while not [*work.rglob(".tmp*"), *results.rglob(".tmp*")]:
            assert time.monotonic() < deadline and killed.poll() is None
        killed.send_signal(signal.SIGKILL)
    undo(run_dir)
    assert files(work) == before
    assert not [*tmp_path.rglob(".dsopt-aside"), *results.rglob(".tmp*")]
    if is_elsewhere:
        shutil.rmtree(results)


@pytest.mark.parametrize("act", ["os.replace('latest.tmp', 'latest')", "os.link('latest.tmp', 'latest')"])
def test_a_run_that_is_killed_while_it_moves_leaves_nothing(tmp_path: Path, work: Path, act: str) -> None:
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    kill = "save('latest.tmp')\nisolation._known.owns = lambda *_: os._exit(0)\nisolation._known.aside.has_moved = "
    run(run_dir, work, f"{kill}isolation._known.aside.has_linked = lambda *_: os._exit(0)\n{act}\n")
    undo(run_dir)
    assert files(work) == {}


def test_a_file_that_cannot_be_moved_is_the_users_still_after_it_was_saved_over(tmp_path: Path) -> None:
    """As on a disk that takes no more files: what was in it comes back."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, "-t", "tmpfs", "-o", "size=20m,nr_inodes=20", "tmpfs"):
        write_old(disk / "latest.pt")
        with contextlib.suppress(OSError):
            for number in range(30):
                write_old(disk / f"other{number}", "")
        before = files(disk)
        time.sleep(0.05)
        run_dir = RunDir.create(tmp_path / "results", "baseline")
        run(run_dir, tmp_path, "save('disk/latest.pt')")
        undo(run_dir)
        assert files(disk) == before


def test_the_first_runs_leave_what_the_next_one_can_begin_from(tmp_path: Path) -> None:
    """Scripts that look for their last checkpoint, by its folder or by a file that names it, and load it."""
    work = tmp_path / "work"
    write_old(work / "out" / "log.txt")
    script = """
import glob, torch
found = glob.glob("out/checkpoint-*")
if found:
    torch.load(found[-1] + "/model.pt")
if os.path.exists("out/last_checkpoint"):
    torch.load(Path("out/last_checkpoint").read_text())
if os.path.isdir("ckpt"):
    torch.load("ckpt/model.pt")
os.makedirs("out/checkpoint-10")
save("out/checkpoint-10/model.pt")
Path("out/last_checkpoint").write_text("out/checkpoint-10/model.pt")
os.makedirs("ckpt.tmp")
save("ckpt.tmp/model.pt")
os.rename("ckpt.tmp", "ckpt")
"""
    for _ in range(2):
        time.sleep(0.05)
        run_dir = RunDir.create(tmp_path / "results", "baseline")
        run(run_dir, work, script)
        undo(run_dir)
        assert set(os.listdir(work / "out")) == {"log.txt"}


def test_a_run_that_goes_on_keeps_what_another_has_made(tmp_path: Path, work: Path) -> None:
    """A folder that it has found before its first save, and what it reads; both go once it has ended, too."""
    ended, beside = (RunDir.create(tmp_path / "results", name) for name in ("a", "b"))
    run(ended, work, 'save("checkpoints/a.pt")\nPath("checkpoints/cache").write_bytes(bytes(2 << 20))')
    with going_on(beside):
        undo(ended)
        assert set(os.listdir(work / "checkpoints")) == {"cache"}
    undo(beside)
    assert not os.listdir(work)


FROM_THE_START = BEGINNING.replace("writer.emit(Step(", "begins = lambda: writer.emit(Step(")
TRAINS = """
os.makedirs("out/001", exist_ok=True)
Path("out/001/args.json").write_text("{}")
begins()
save("out/001/last.pt")
Path("out/progress.tmp").write_text("10")
os.replace("out/progress.tmp", "out/progress.json")
"""


def test_what_says_how_far_a_run_came_goes_though_another_study_works_there(tmp_path: Path, work: Path) -> None:
    """Else the next run, and the training, would go on from its number of steps without its weights."""
    needs_births(tmp_path)
    run_dir, other = (RunDir.create(tmp_path / results / "results", "a") for results in ("one", "another"))
    with going_on(other, work):
        run(run_dir, work, TRAINS, beginning=FROM_THE_START)
        undo(run_dir)
        assert [*work.rglob("*")] == [work / "out"]  # which another may have found there
    assert undo_left(run_dir.path.parent) == Remains()
    assert not os.listdir(work)


def test_a_folder_for_all_trainings_stays_while_another_study_works_there(tmp_path: Path, work: Path) -> None:
    """It may have found it there, and save to it; not the folder of one training, which a script goes on from."""
    needs_births(tmp_path)
    run_dir, other = (RunDir.create(tmp_path / results / "results", "a") for results in ("one", "another"))
    measuring = RunDir(tmp_path / "another" / "results" / "node-speed-1")  # which works in no folder of the user's
    run(run_dir, work, "save('checkpoints/a.pt')\nsave('exp-7/b.pt')\nsave('checkpoints/best/c.pt')")
    with going_on(other, work):
        undo(run_dir)
        assert [*work.rglob("*")] == [work / "checkpoints"]
    with going_on(measuring, Path("/")):
        assert undo_left(run_dir.path.parent) == Remains()
    assert not os.listdir(work)


def test_what_runs_of_one_study_have_left_waits_for_all_of_them(tmp_path: Path, work: Path) -> None:
    ended, beside = (RunDir.create(tmp_path / "results", name) for name in ("a", "b"))
    run(ended, work, "save('ckpt/m.pt')")
    with going_on(beside):
        undo(ended)
        assert undo_left(tmp_path / "results", for_training=True).waiting == (beside.path,)
        assert os.listdir(work) == ["ckpt"]
    assert undo_left(tmp_path / "results", for_training=True).waiting == ()
    assert not os.listdir(work)


def test_a_run_that_nobody_undid_is_undone_before_a_training(tmp_path: Path, work: Path) -> None:
    """It had ended beside others, was started again, and then all of its machine's dsopt was killed."""
    needs_births(tmp_path)
    again, beside = (RunDir.create(tmp_path / "results", name) for name in ("a", "b"))
    run(again, work, "save('ckpt/m.pt')")
    with going_on(beside):
        undo(again)
        again.set_aside()
    run(again, work, "save('ckpt/m.pt')")
    assert undo_left(tmp_path / "results", for_training=True).waiting == (again.path,)  # it may go on
    for path in again.path.rglob("*"):
        os.utime(path, ns=(1, 1))
    assert undo_left(tmp_path / "results", for_training=True) == Remains()


def test_what_could_not_be_tidied_is_tried_again(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, beside = (RunDir.create(tmp_path / "results", name) for name in ("a", "b"))
    run(ended, work, "save('ckpt/m.pt')")
    with going_on(beside):
        undo(ended)
    with monkeypatch.context() as patch:
        patch.setattr("dsopt.launch.tidied._tidy_now", lambda *_, **__: os.stat(tmp_path / "nothing"))
        assert undo_left(tmp_path / "results").waiting == (ended.path,)
    assert undo_left(tmp_path / "results") == Remains()
    assert not os.listdir(work)


def test_empty_folders_of_the_users_stay_behind_a_link_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "mine" / "inbox").mkdir(parents=True)
    time.sleep(0.05)
    run_dir = RunDir.create(tmp_path / "results", "a")
    run(run_dir, tmp_path, "os.mkdir('out')\nos.symlink('../mine', 'out/data')\nsave('out/a.pt')")
    undo(run_dir)
    assert (tmp_path / "mine" / "inbox").is_dir()
    assert os.listdir(tmp_path / "out") == ["data"]


def test_before_a_training_all_goes_that_no_run_has_written_to(tmp_path: Path, work: Path) -> None:
    needs_births(tmp_path)
    run_dir, other = (RunDir.create(tmp_path / results / "results", "a") for results in ("one", "another"))
    run(run_dir, work, TRAINS, beginning=FROM_THE_START)
    run(other, work, "save('out/another.pt')")
    with going_on(other, work):
        undo(run_dir)
        assert undo_left(run_dir.path.parent, for_training=True) == Remains(waiting=(run_dir.path,))
        assert (work / "out" / "progress.json").exists()
        for events in other.all_events():
            events.unlink()
        assert undo_left(run_dir.path.parent, for_training=True) == Remains()
        assert files(work).keys() == {"out/another.pt"}


ATOMIC = "save('last.{0}')\nos.replace('last.{0}', 'last.pt')\n"


@pytest.mark.parametrize("first", ["a", "b"])
@pytest.mark.parametrize(
    "act",
    [
        ATOMIC.format("tmp"),
        "if os.path.isdir('ckpt'):\n    os.rename('ckpt', f'ckpt.{os.getpid()}')\nsave('ckpt/m.pt')",
        "save('mine')\nos.makedirs('ckpt', exist_ok=True)\nshutil.copyfile('mine', 'ckpt/m.pt')",
        "save('best.pt')\nimport torch\ntorch.load('best.pt')",
    ],
)
def test_runs_beside_each_other_take_nothing_of_each_other_for_the_users(
    tmp_path: Path, work: Path, act: str, first: str
) -> None:
    """Whichever of them ends first."""
    needs_births(tmp_path)
    runs = {name: RunDir.create(tmp_path / "results", name) for name in ("a", "b")}
    began_ns = runs["a"].mark.stat().st_mtime_ns
    time.sleep(0.05)
    for name in ("b", "a", "b"):
        run(runs[name], work, act, began_ns)
    for name in (first, "a", "b"):
        undo(runs[name])
    assert files(work) == {} and os.listdir(work) == []


def test_a_run_that_was_started_again_is_not_tidied(tmp_path: Path, work: Path) -> None:
    """In its own folder, after its forked ranks had failed beside another run."""
    again, beside = (RunDir.create(tmp_path / "results", name) for name in ("a", "b"))
    run(again, work, 'save("ckpt/m.pt")')
    with going_on(beside):
        undo(again)
        again.set_aside()
    run(again, work, 'Path("ckpt/state.json").write_text("{}")\nsave("ckpt/m.pt")')
    undo(beside)
    assert set(os.listdir(work / "ckpt")) == {"state.json", "m.pt"}
    undo(again)
    undo(RunDir.create(tmp_path / "results", "c"))
    assert not os.listdir(work)


def test_what_a_start_has_left_goes_after_the_next_start(tmp_path: Path, work: Path) -> None:
    """The first had failed beside another run; the script makes a folder of another name each time."""
    needs_births(tmp_path)
    again, beside = (RunDir.create(tmp_path / "results", name) for name in ("a", "b"))
    script = "os.makedirs('runs/run_{0}')\nPath('runs/run_{0}/args.json').write_text('a')\nbegins()"
    run(again, work, script.format(1), beginning=FROM_THE_START)
    with going_on(beside):
        undo(again)
        again.set_aside()
        run(again, work, script.format(2), beginning=FROM_THE_START)
    assert files(work).keys() == {"runs/run_1/args.json", "runs/run_2/args.json"}
    undo(again)
    assert not os.listdir(work)


def test_data_of_a_start_that_stepped_stays_though_the_next_one_does_not(tmp_path: Path, work: Path) -> None:
    needs_births(tmp_path)
    again = RunDir.create(tmp_path / "results", "a")
    run(again, work, "os.makedirs('data')\nPath('data/tokens').write_text('all')\nbegins()", beginning=FROM_THE_START)
    with contextlib.closing(EventWriter(again, 0)) as writer:
        writer.emit(Step(rank=0, step=0, seconds=1.0, samples=1))
    undo(again)
    again.set_aside()
    undo(again)
    assert files(work) == {"data/tokens": "all"}


def test_what_came_after_a_run_that_nobody_undid_stays(tmp_path: Path, work: Path) -> None:
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(run_dir, work, 'save("out/model.pt")\nsave("quiet/model.pt")')
    later = time.time() + 300
    (work / "out" / "results.json").write_text("the user's")
    for path in (work / "out" / "results.json", work / "out"):
        os.utime(path, (later, later))
    undo(run_dir, is_late=True)
    assert files(tmp_path / "work") == {"out/results.json": "the user's"}
    assert os.listdir(work) == ["out"]


def test_an_overlay_tells_no_births_and_keeps_what_was_there(tmp_path: Path) -> None:
    """As in a container: the date alone tells there what is the user's, and anything may have changed it."""
    lower, upper, inner, work = (tmp_path / name for name in ("lower", "upper", "inner", "work"))
    for folder in (upper, inner, work):
        folder.mkdir()
    write_old(lower / "metrics.csv", "the user's")
    layers = f"lowerdir={lower},upperdir={upper},workdir={inner}"
    with mounted(work, "-t", "overlay", "overlay", "-o", layers):
        run_dir = RunDir.create(tmp_path / "results", "baseline")
        run(run_dir, work, """
save("m.pt")
os.system("echo more >> metrics.csv")
with open("metrics.csv", "a") as file:
    file.write("more")
""")  # fmt: skip
        undo(run_dir)
        assert files(work) == {"metrics.csv": "the user'smore\nmore"}


SWAPS_A_FILE = """
os.rename("labels.pkl", "labels.pkl.bak")
with open("labels.pkl", "w") as file:
    file.write("the run's")
save("ckpt/last.pt")
os.replace("labels.pkl.bak", "labels.pkl")
"""
SWAPS_FOLDERS = """
os.rename("conf", "conf.bak")
os.mkdir("conf")
Path("conf/a.json").write_text("{}")
shutil.rmtree("conf")
os.rename("conf.bak", "conf")
save("conf/last.pt")
os.rename("rest", "rest.bak")
os.mkdir("rest")
os.rmdir("rest")
os.rename("rest.bak", "rest")
save("rest/last.pt")
"""


@pytest.mark.parametrize("is_overlay", [False, True])
def test_what_was_swapped_for_a_while_is_the_users(tmp_path: Path, is_overlay: bool) -> None:
    """Something of the run's own has been at its path before: that does not make it the run's."""
    lower, upper, inner, work = (tmp_path / name for name in ("lower", "upper", "inner", "work"))
    for folder in (upper, inner, work):
        folder.mkdir()
    below = lower if is_overlay else work
    for name in ("labels.pkl", "conf/a.json", "rest/b.json"):
        write_old(below / name)
    (below / "rest" / "empty").mkdir()
    layers = f"lowerdir={lower},upperdir={upper},workdir={inner}"
    overlay = mounted(work, "-t", "overlay", "overlay", "-o", layers)
    with overlay if is_overlay else contextlib.nullcontext():
        before, folders = files(work), set(work.rglob("*"))
        time.sleep(0.05)
        run_dir = RunDir.create(tmp_path / "results", "baseline")
        run(run_dir, work, SWAPS_A_FILE if is_overlay else SWAPS_A_FILE + SWAPS_FOLDERS)  # no overlay renames those
        undo(run_dir)
        assert files(work) == before
        assert set(work.rglob("*")) >= folders


def test_what_others_put_in_place_of_a_file_stays(tmp_path: Path, work: Path) -> None:
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(run_dir, work, """
save("ckpt/mine.pt")
Path("ckpt/latest").write_text("mine")
os.system("echo others > ckpt/theirs; mv ckpt/theirs ckpt/latest")
os.rename("ckpt", "ckpt_1")
""")  # fmt: skip
    undo(run_dir)
    assert files(work) == {"ckpt_1/latest": "others\n"}


def test_what_another_training_makes_in_a_folder_of_a_run_stays(tmp_path: Path, work: Path) -> None:
    """Between the end of the run and that of the last one beside it."""
    ended, beside = (RunDir.create(tmp_path / "results", name) for name in ("a", "b"))
    run(ended, work, 'save("ckpt/inner/last.pt")\nsave("ckpt/last.pt")')
    with going_on(beside):
        undo(ended)
        time.sleep(0.05)
        (work / "ckpt" / "theirs" / "weights").mkdir(parents=True)
    undo_left(tmp_path / "results")
    assert set(work.rglob("*")) == {work / "ckpt", work / "ckpt" / "theirs", work / "ckpt" / "theirs" / "weights"}


def test_a_file_comes_to_another_mount_of_the_same_disk(tmp_path: Path) -> None:
    work, other, place = (tmp_path / name for name in ("work", "other", "place"))
    for folder in (work, other, place):
        folder.mkdir()
    with mounted(place, "--bind", other):
        run_dir = RunDir.create(tmp_path / "results", "baseline")
        run(run_dir, work, SAFE + f"save_file(tensors, '{place}/model.safetensors')")
        assert os.listdir(place) == ["model.safetensors"]
        undo(run_dir)
        assert not os.listdir(place)


def test_a_first_model_that_is_made_once_stays_as_a_whole(tmp_path: Path, work: Path) -> None:
    """Before the first step, with files that other functions have written there: nobody has trained it."""
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(run_dir, work, """
import torch
isolation._writer._stepped[0] = 0
os.makedirs("base")
Path("base/tokenizer_config.json").write_text("{}")
isolation._saves.around_save_into(lambda: torch.save(weights, "base/model.bin"), "save", "base")
""")  # fmt: skip
    undo(run_dir)
    assert set(os.listdir(work / "base")) == {"tokenizer_config.json", "model.bin"}


def test_a_checkpoint_that_is_not_loaded_counts_from_nothing(tmp_path: Path) -> None:
    """As DeepSpeed's own page has it: `_, state = engine.load_checkpoint(…)`, then `state["step"]`."""
    write_old(tmp_path / "ckpt" / "latest", "global_step10")
    (tmp_path / "empty").mkdir()
    run(RunDir.create(tmp_path / "results", "baseline"), tmp_path, """
from deepspeed.runtime.engine import DeepSpeedEngine
engine = DeepSpeedEngine.__new__(DeepSpeedEngine)
path, state = DeepSpeedEngine.load_checkpoint(None, "ckpt")
assert path is None and state["step"] == 0 and state.get("step") is None and not state
for folder in ("elsewhere", "empty"):
    assert DeepSpeedEngine.load_checkpoint(None, load_dir=folder) == (None, None)
assert DeepSpeedEngine.load_checkpoint(None, "ckpt", "another") == (None, None)
from accelerate import Accelerator
tracker = Accelerator.get_tracker(None, "wandb", unwrap=True)
tracker.define_metric("loss").run.log({})
tracker.summary["best"] = tracker.config["rate"]
with tracker.start_run():
    assert [*tracker.runs] == []
""")  # fmt: skip


def test_a_checkpoint_that_a_training_would_go_on_from_is_told(tmp_path: Path) -> None:
    """Whatever the script looks for before; of weights alone, no ZeRO stage matters."""
    write_old(tmp_path / "ckpt" / "latest", "global_step10")
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run(run_dir, tmp_path, """
from accelerate import Accelerator
from deepspeed.runtime.engine import DeepSpeedEngine
load = DeepSpeedEngine.load_checkpoint
load(None, "elsewhere")
load(None, "ckpt", load_module_only=True)
load(None, "ckpt", None, True, False)
load(None, "ckpt", load_optimizer_states=None)
load(None, "ckpt")
load(None, "ckpt")
Accelerator.load_state(None, "ckpt")
""")  # fmt: skip
    told = [(event.path, event.is_there) for event in EventReader(run_dir).read() if isinstance(event, Withheld)]
    assert told == [("elsewhere", False), ("ckpt", True), ("ckpt", True)]


CACHE = """
if not os.path.isdir("cache"):
    os.mkdir("cache")
    Path("cache", "tokens.npy").write_bytes(bytes(2**21))
    Path("cache", "meta.json").write_text("{}")
assert Path("cache", "meta.json").read_text() == "{}"
assert Path("cache", "tokens.npy").stat().st_size == 2**21
"""
ROTATES = "shutil.move('best.pt', 'previous/best.pt')\nsave('best.pt')\n"
# what was there, what the script does before its first step, and after it, and what is left
FOLDERS: dict[str, tuple[list[str], str, str, set[str]]] = {
    "data that it has made stay whole": ([], "", CACHE, {"cache", "cache/meta.json", "cache/tokens.npy"}),
    "one that it had removed itself": (
        ["best.pt"], "", f"os.mkdir('previous')\n{ROTATES}os.remove('previous/best.pt'); os.rmdir('previous')", set(),
    ),
    "one for the user's file": (["best.pt"], "os.mkdir('previous')", ROTATES + "shutil.rmtree('previous')", set()),
    "one for the user's file, still there": (["best.pt"], "os.mkdir('previous')", ROTATES, set()),
    "one of a training": (
        [], "os.makedirs('runs/001'); Path('runs/001/args.json').write_text('{}')",
        "assert os.listdir('runs') == ['001']; save('runs/001/last.pt')", set(),
    ),
    "one of a training with data": (
        [],
        "os.makedirs('runs', exist_ok=True); Path('runs/data').write_bytes(bytes(2**21)); Path('runs/of').touch()",
        "save('runs/last.pt')", {"runs", "runs/data", "runs/of"},
    ),
    "one with what it has only written": (
        [], "os.makedirs('logs', exist_ok=True); Path('logs/a').touch()", "save('last.pt')", {"logs", "logs/a"},
    ),
    "what it has written again later": (
        [], "os.system('mkdir -p out'); Path('out/latest.txt').write_text('1')",
        "save('out/m.pt'); Path('out/latest.txt').write_text('2')", set(),
    ),
    "one with data that nobody has told of": (
        [], "os.makedirs('runs', exist_ok=True); os.system('head -c 2000000 /dev/zero > runs/data'); "
        "Path('runs/of').write_text('data')", "save('runs/last.pt')", {"runs", "runs/data", "runs/of"},
    ),
    "one of a training that DeepSpeed saves": (
        [], "os.makedirs('runs/001'); Path('runs/001/args.json').write_text('a')", """
from deepspeed.runtime.engine import DeepSpeedEngine
DeepSpeedEngine.save_checkpoint(None, "runs/001", tag="step10")
assert os.path.isdir("runs/001/step10")
""", set(),
    ),
    "data in small files": (
        [], "os.makedirs('data', exist_ok=True); [Path(f'data/{name}').touch() for name in 'abc']", "",
        {"data", "data/a", "data/b", "data/c"},
    ),
    "one with what others have written": (
        [], "os.makedirs('exp1', exist_ok=True); os.system('touch exp1/image'); Path('exp1/labels').write_text('0')",
        "save('exp1/last.pt')", {"exp1", "exp1/image", "exp1/labels"},
    ),
    "one with a link to data": (["images/a"], """
os.makedirs("exp1", exist_ok=True)
Path("exp1/index").write_text("0")
if not os.path.exists("exp1/images"):
    os.symlink("../images", "exp1/images")
""", "save('exp1/last.pt')", {"images", "exp1", "exp1/index", "exp1/images"},
    ),
    "what says of what data were made": (
        [], """
os.makedirs("data/raw1")
os.rmdir("data/raw1")
Path("data/meta.json").write_text("raw1")
Path("data/train.npy").write_bytes(bytes(2**21))
""", "save('last.pt')", {"data", "data/meta.json", "data/train.npy"},
    ),
    "what it writes to the user's, which it could not replace": (["out/u"], "", """
os.mkdir("out.tmp")
save("last.pt")
try:
    os.rename("out.tmp", "out")
except OSError:
    Path("out/note").write_text("n")
""", {"out"},
    ),
    "a link to it, made at once": (
        [], "os.makedirs('runs/001'); Path('runs/001/args.json').write_text('a'); "
        "assert not os.path.lexists('runs/latest'); os.symlink('001', 'runs/latest')",
        "save('runs/001/last.pt')", set(),
    ),
    "a file that names it, made at once": (
        ["out/of"], """
os.makedirs("out/001")
assert not os.path.exists("out/last")
Path("out/last").write_text("out/001")
Path("out/sizes.json").write_text('{"sizes": [1001, "a-001"]}')
""", "save('out/001/last.pt')", {"out", "out/sizes.json"},
    ),
    "a link to a checkpoint's folder": (
        [], "", "save('checkpoints/step_5/m.pt'); os.symlink('step_5', 'checkpoints/latest')", set(),
    ),
    "a folder of one training, without weights": (
        ["runs/2024-01-01_0000/last.pt"], "name = f'runs/{time.time_ns()}'; os.makedirs(f'{name}/run_1'); "
        "Path(f'{name}/args.json').write_text('a'); Path('runs/last.txt').write_text(name)",
        "open(f'{name}/log.csv', 'w').write('1')", {"runs", "runs/2024-01-01_0000"},
    ),
    "a file that names one, written later": (
        [], "os.makedirs('runs/run_1'); Path('runs/run_1/args.json').write_text('a')",
        "Path('latest').write_text('runs/run_1')", set(),
    ),
    "folders of trainings, without weights": (
        [], "os.makedirs('out/version_3/a')", "Path('out/version_3/a/metrics.csv').write_text('1')", set(),
    ),
    "data in a folder with such a name": (
        [], "os.makedirs('data/run_1', exist_ok=True); Path('data/run_1/a.json').write_text('a'); "
        "Path('data/all').write_bytes(bytes(2**21))", "", {"data", "data/all", "data/run_1", "data/run_1/a.json"},
    ),
    "shards of data, each in its folder": (
        ["data/u"], "[os.makedirs(f'data/run_{n}', exist_ok=True) for n in (1, 2)]; "
        "Path('data/run_1/a').write_text('a'); Path('data/run_2/a').write_bytes(bytes(2**21))", "",
        {"data", "data/run_1", "data/run_2", "data/run_1/a", "data/run_2/a"},
    ),
    "what tells of data in another folder": (
        ["data/u"], "os.makedirs('data/train', exist_ok=True); Path('data/train/a.npy').write_bytes(bytes(2**21)); "
        "Path('data/train.json').write_text('a')", """
Path("data/train.json").write_text("b")
os.makedirs("data/val", exist_ok=True)
Path("data/val/tokens.npy").write_bytes(bytes(2**21))
Path("data/val_meta.json").write_text("{}")
Path("data/val_ids.pkl").write_text("{}")
save("out/last.pt")
""", {"data", "data/train", "data/train/a.npy", "data/train.json", "data/val", "data/val/tokens.npy",
      "data/val_meta.json", "data/val_ids.pkl"},
    ),
    "data that is opened again after the first step": (
        ["u"], "os.makedirs('scratch', exist_ok=True); Path('train.npy').write_bytes(bytes(2**21)); "
        "Path('train.json').write_text('a')", "open('train.npy', 'r+').close()\nsave('out/last.pt')",
        {"train.npy", "train.json"},
    ),
    "a folder that `latest` names": (
        ["out/u"], "os.makedirs('out/run_1'); Path('out/run_1/a').write_text('a'); "
        "assert not os.path.exists('out/latest'); Path('out/latest').write_text('run_1')", "", {"out"},
    ),
    "data beside a folder with such a name": (
        ["u"], "os.makedirs('run_1', exist_ok=True); Path('run_1/a.json').write_text('a'); "
        "Path('index.json').write_text('a')", "", {"run_1", "run_1/a.json", "index.json"},
    ),
    "how far it came, without weights": (
        [], "os.makedirs('out', exist_ok=True)", """
for step in range(2):
    Path("out/state.json.tmp").write_text(str(step))
    os.replace("out/state.json.tmp", "out/state.json")
""", set(),
    ),
    "weights that nothing of PyTorch has saved": (
        [], "os.makedirs('state')", """
import pickle
with open("state/last.pkl", "wb") as file:
    pickle.dump(weights, file)
Path("state/step.txt").write_text("9")
""", set(),
    ),
    "the number of its process": (
        [], "Path('train.pid').write_text('1'); Path('empty.lock').touch()", "save('last.pt')", {"empty.lock"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDERS)
def test_the_next_run_finds_no_folder_half_full(tmp_path: Path, work: Path, case: str) -> None:
    """A script that ran twice met what the first run had left, and failed."""
    needs_births(tmp_path)
    there, begins, goes_on, left = FOLDERS[case]
    for name in there:
        write_old(work / name)
    for number in range(2):
        run_dir = RunDir.create(tmp_path / "results", f"r{number}")
        run(run_dir, work, f"{begins}\nbegins()\n{goes_on}", beginning=FROM_THE_START)
        undo(run_dir)
        assert {str(path.relative_to(work)) for path in work.rglob("*")} == {*there, *left}
    assert all((work / name).read_text() == "the user's" for name in there)


def test_what_others_write_to_a_folder_of_a_run_stays(tmp_path: Path, work: Path) -> None:
    """Such as the user's own training, which begins beside it."""
    needs_births(tmp_path)
    run_dir = RunDir.create(tmp_path / "results", "r")
    others = (
        "import subprocess\nsubprocess.run(['sh', '-c', 'mkdir runs/002; echo of the user > runs/002/args.json'])\n"
    )
    begins = f"os.makedirs('runs/001'); Path('runs/001/args.json').write_text('a')\n{others}begins()\n"
    run(run_dir, work, f"{begins}save('runs/001/last.pt')", beginning=FROM_THE_START)
    undo(run_dir)
    assert files(work) == {"runs/002/args.json": "of the user\n"}
    assert not (work / "runs" / "001").exists()
