"""Runs of several studies in one working folder, and several processes that undo the same run."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsopt.launch import part, undone
from dsopt.launch.outside import note_before
from dsopt.launch.undone import Remains, undo, undo_left
from dsopt.protocol.events import EventWriter, FilePath, Moved
from dsopt.protocol.run_dir import RunDir
from tests.probe.rank import files, needs_births, run, write_old
from tests.probe.test_every_way_to_save import FROM_THE_START, going_on

SOON_NS = 500_000_000  # a file is written after that is told
SAVES = "os.makedirs('{0}', exist_ok=True)\nbegins()\n{1}import torch\ntorch.save(weights, '{0}/last.pt')"


@pytest.mark.parametrize("folder", ["out/ckpt", "gpt2-out", "exp/checkpoint-10"])
def test_a_run_of_another_study_saves_to_a_folder_that_it_wanted_to_make_and_found(
    tmp_path: Path, work: Path, folder: str
) -> None:
    """Whichever of both ends first, and though the first one's training is about to begin."""
    needs_births(tmp_path)
    ended, other = (RunDir.create(tmp_path / study / "results", "a") for study in ("one", "another"))
    run(ended, work, SAVES.format(folder, "Path('latest').write_text('last.pt')\n"), beginning=FROM_THE_START)
    script = FROM_THE_START + SAVES.format(folder, "print('ready', flush=True)\ninput()\n")
    environment = {**os.environ, "DSOPT_RUN_DIR": str(other.path)}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", script, str(other.path)]
    with subprocess.Popen(command, cwd=work, text=True, env=environment, **pipes) as saving:
        assert saving.stdout is not None
        assert saving.stdout.readline() == "ready\n"
        undo(ended)
        assert [*files(work)] == []
        assert undo_left(ended.path.parent, for_training=True).waiting == (ended.path,)
        _, said = saving.communicate("\n")
        assert saving.returncode == 0, said
    undo(other)
    assert undo_left(ended.path.parent, for_training=True) == Remains()
    assert not os.listdir(work)


def test_a_run_is_undone_by_one_at_a_time(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its worker starts it again, and somebody who is late then marks it as undone, and what it does stays."""
    write_old(work / "model.pt")
    run_dir = RunDir.create(tmp_path / "results", "a")
    note_before(run_dir, work, [tmp_path / "results"])
    run(run_dir, work, "os.remove('model.pt')\nsave('model.pt')")
    monkeypatch.setattr(undone, "_SAVING_NS", SOON_NS)  # it has told nothing for long
    time.sleep(1.0)
    looked, goes_on, note_after = threading.Event(), threading.Event(), undone.note_after

    def look_long(*args: object, **kwargs: object) -> None:
        looked.set()
        goes_on.wait()
        note_after(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(undone, "note_after", look_long)
    monkeypatch.setattr(undone, "_PATIENCE_SECONDS", 0.2)
    another = threading.Thread(target=undo_left, args=(tmp_path / "results",))
    another.start()
    assert looked.wait(60)
    undo(run_dir)
    assert not run_dir.undone.exists()  # so that its worker does not start it again
    assert undo_left(tmp_path / "results").waiting == (run_dir.path,)
    goes_on.set()
    another.join(60)
    assert run_dir.undone.exists()
    assert files(work) == {"model.pt": "the user's"}
    run_dir.set_aside()
    run(run_dir, work, "os.remove('model.pt')\nsave('model.pt')")
    undo(run_dir)
    assert files(work) == {"model.pt": "the user's"}


PREPARES = """
if not os.path.exists("cache/meta.json"):
    os.makedirs("cache", exist_ok=True)
    Path("cache/tokens.bin").write_bytes(bytes(2**21))
    Path("train.pid").write_text("1")
    tokens = open("cache/tokens.jsonl", "w")
    tokens.write("some")
    tokens.flush()
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "writer.emit(End(rank=0))", "begins()"])
def test_of_a_run_that_was_ended_before_its_first_step_nothing_stays(tmp_path: Path, work: Path, end: str) -> None:
    """Half of the data that a script prepares would be taken for all of it."""
    needs_births(tmp_path)
    write_old(work / "mine.json")
    run_dir = RunDir.create(tmp_path / "results", "a")
    beginning = "from dsopt.protocol.events import End\n" + FROM_THE_START
    command = [sys.executable, "-c", f"{beginning}{PREPARES}open('mine.json', 'w').write('half')\n{end}", run_dir.path]
    subprocess.run(command, cwd=work, check=False)
    undo(run_dir)
    left = {"cache/tokens.bin", "cache/tokens.jsonl"} if "kill" not in end else set[str]()
    assert files(work).keys() == {"mine.json", *left}
    assert (work / "mine.json").read_text() == "the user's"
    assert (work / "cache").exists() == bool(left)


ON_POD_A = "import platform\nplatform.node = lambda: 'pod-a'\n" + FROM_THE_START
MAKER = "boot/1 2 3.0 pod-a"
SAVES_THERE = (
    "begins()\nos.remove('model.pt')\nsave('model.pt')\nsave('out/last.pt')\nPath('out/state').write_text('9')"
)


def make_run_of_pod_a(results: Path, work: Path, acts: str) -> RunDir:
    """A run of a machine of that name, which is gone."""
    needs_births(results.parent)
    write_old(work / "model.pt")
    time.sleep(0.05)
    run_dir = RunDir.create(results, "a", "database", MAKER)
    note_before(run_dir, work, [results])
    run(run_dir, work, acts, beginning=ON_POD_A)
    return run_dir


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a second, and not minutes, until a run counts as over."""
    monkeypatch.setattr(undone, "_SAVING_NS", SOON_NS)
    monkeypatch.setattr(undone, "_ELSEWHERE_NS", 0)


def test_what_a_run_did_on_a_machine_that_is_gone_is_undone_by_another_one(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the same folders, as in a cluster; in Kubernetes, each pod is a machine of its own name."""
    run_dir = make_run_of_pod_a(tmp_path / "results", work, SAVES_THERE)
    assert undo_left(tmp_path / "results", for_training=True).waiting == (run_dir.path,)  # it may go on
    monkeypatch.setattr(undone, "_SAVING_NS", SOON_NS)
    assert undo_left(tmp_path / "results", for_training=True).waiting == (run_dir.path,)  # its clock is its own
    monkeypatch.setattr(undone, "_ELSEWHERE_NS", 0)
    time.sleep(1.0)
    assert undo_left(tmp_path / "results", for_training=True) == Remains()
    assert files(work) == {"model.pt": "the user's"}
    assert os.listdir(work) == ["model.pt"]
    assert not run_dir.undone_on("pod-a").exists()  # if it was only suspended, it looks itself


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder on a file system of its own."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.usefixtures("silence")
def test_that_is_so_on_all_file_systems_that_both_have(tmp_path: Path, work: Path, elsewhere: Path) -> None:
    """A container gets another name each time that it starts, and the same mounts."""
    needs_births(elsewhere)
    write_old(elsewhere / "old.pt")
    acts = f"begins()\nos.remove('{elsewhere}/old.pt')\nsave('{elsewhere}/ckpt/step_9.pt')"
    run_dir = make_run_of_pod_a(tmp_path / "results", work, acts)
    (other := elsewhere / "other").write_text("this machine's")
    (run_dir.aside).mkdir()
    (copy := run_dir.aside / "1").write_text("the other machine's")
    moved = Moved(
        rank=0, path=FilePath(str(other)), to=FilePath(str(copy)), host="pod-a", inode="1", time=1, is_copy=True
    )
    with contextlib.closing(EventWriter(run_dir, 0)) as writer:
        writer.emit(moved)
    assert files(elsewhere).keys() != {"old.pt"}
    time.sleep(1.0)
    assert undo_left(tmp_path / "results", for_training=True) == Remains()
    assert files(elsewhere) == {"old.pt": "the user's", "other": "this machine's"}
    assert sorted(os.listdir(elsewhere)) == ["old.pt", "other"]
    assert copy.read_text() == "the other machine's"


@pytest.mark.usefixtures("silence")
def test_what_a_machine_that_is_gone_has_left_is_tidied_once_no_run_goes_on(tmp_path: Path, work: Path) -> None:
    run_dir = make_run_of_pod_a(tmp_path / "results", work, SAVES_THERE)
    beside = RunDir.create(tmp_path / "results", "b")
    time.sleep(1.0)
    with going_on(beside):
        assert undo_left(tmp_path / "results", for_training=True).waiting == (beside.path,)
        assert files(work) == {"model.pt": "the user's", "out/state": "9"}
    assert run_dir.undone.exists() is False  # which is this machine's own
    assert undo_left(tmp_path / "results", for_training=True) == Remains()
    assert os.listdir(work) == ["model.pt"]


def test_what_another_machine_has_left_is_tidied_here_too(tmp_path: Path, work: Path) -> None:
    """A run had ended there while one of this machine went on, whose worker is the last to come by."""
    results = tmp_path / "results"
    run_dir = make_run_of_pod_a(results, work, "pass")
    run(run_dir, work, "os.makedirs('runs/run_1')\nPath('runs/run_1/args.json').write_text('1')", beginning=ON_POD_A)
    run_dir.undone_on("pod-a").touch()
    listed = results / ".dsopt-left-pod-a"
    listed.write_text(f"a\t\t{time.time_ns()}\nof no run\n")
    beside = RunDir.create(results, "b")
    with going_on(beside):
        assert undo_left(results, for_training=True).waiting == (beside.path,)
    assert undo_left(results, for_training=True) == Remains()
    assert os.listdir(work) == ["model.pt"]
    assert listed.exists()  # there may be more on disks that only that machine has


def test_what_a_run_on_another_machine_may_use_stays_until_that_is_silent(tmp_path: Path, work: Path) -> None:
    """It is of the same study, and its processes are not seen here."""
    needs_births(tmp_path)
    ended, other = RunDir.create(tmp_path / "results", "a"), RunDir.create(tmp_path / "results", "b", "", MAKER)
    other.stdout.touch()
    run(ended, work, "os.makedirs('logs')\nPath('logs/train.csv').write_text('1')")
    undo(ended)
    assert files(work).keys() == {"logs/train.csv"}
    assert undo_left(tmp_path / "results", for_training=True).waiting == (other.path,)
    for path in (other.mark, other.stdout):
        os.utime(path, (1, 1))
    assert undo_left(tmp_path / "results", for_training=True) == Remains()
    assert not os.listdir(work)


@pytest.mark.usefixtures("silence")
def test_what_ranks_did_on_a_node_that_was_lost_is_undone_here(tmp_path: Path, work: Path) -> None:
    """Its own part of dsopt does that, if the node lives."""
    write_old(work / "model.pt")
    time.sleep(0.05)
    run_dir = RunDir.create(tmp_path / "results", "a")
    note_before(run_dir, work, [tmp_path / "results"])
    run(run_dir, work, SAVES_THERE, beginning=ON_POD_A)
    undo(run_dir)
    time.sleep(1.0)
    assert undo_left(tmp_path / "results", for_training=True) == Remains()
    assert files(work)["model.pt"] != "the user's"
    run_dir.lost.touch()
    run_dir.stdout.touch()
    assert undo_left(tmp_path / "results", for_training=True).waiting == (run_dir.path,)  # it may go on
    time.sleep(1.0)
    beside = RunDir.create(tmp_path / "results", "b")
    with going_on(beside):
        assert undo_left(tmp_path / "results", for_training=True).waiting == (beside.path,)
        assert files(work) == {"model.pt": "the user's", "out/state": "9"}
    assert undo_left(tmp_path / "results", for_training=True) == Remains()
    assert files(work) == {"model.pt": "the user's"}
    assert os.listdir(work) == ["model.pt"]


def test_a_node_keeps_what_tells_of_files_until_they_are_tidied(tmp_path: Path, work: Path) -> None:
    """All runs there have their folders beside each other."""
    needs_births(tmp_path)
    ended, beside = (RunDir.create(tmp_path / "results", name) for name in ("1", "2"))
    run(ended, work, "os.makedirs('logs')\nPath('logs/train.csv').write_text('1')")
    with going_on(beside):
        undo(ended)
        part._remove(ended)
        assert files(work).keys() == {"logs/train.csv"}
    undo_left(tmp_path / "results")
    assert not os.listdir(work)
    part._remove_old(tmp_path / "results")
    assert ended.path.exists()  # somebody may be at it
    os.utime(ended.undone, (1, 1))
    part._remove_old(tmp_path / "results")
    assert os.listdir(tmp_path / "results") == ["2"]


def test_a_file_system_may_show_all_files_as_another_users(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mounts of Windows shares and of buckets do. What others make shows otherwise than what this user makes."""
    write_old(work / "model.pt")
    run_dir = RunDir.create(tmp_path / "results", "a")
    run(run_dir, work, "os.remove('model.pt')\nsave('model.pt')")
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(work).st_uid + 4242)
    monkeypatch.setattr(os, "getuid", os.geteuid)
    planted = RunDir.create(tmp_path / "planted", "a")
    os.chown(planted.mark, 4343, -1) if not os.stat(work).st_uid else None
    undo(run_dir)
    assert files(work) == {"model.pt": "the user's"}
    assert planted.is_own is bool(os.stat(work).st_uid)


WHOLE = "os.makedirs('cache')\nPath('cache/meta.json').write_text('a')\n"


@pytest.mark.parametrize(
    "also",
    [
        "torch.save(weights, 'cache/tokens.pt')",
        "subprocess.run(['touch', 'cache/done'])",
        "Path('index.json').write_text('a'); Path('cache/tokens').write_text('a')",
    ],
)
def test_data_of_a_run_that_was_ended_stays_if_not_all_of_it_can_go(tmp_path: Path, work: Path, also: str) -> None:
    """Without a part of it, the script would fail, or train on the rest."""
    needs_births(tmp_path)
    run_dir = RunDir.create(tmp_path / "results", "a")
    script = f"{FROM_THE_START}import subprocess, torch\n{WHOLE}{also}\nos.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", script, run_dir.path], cwd=work, check=False)
    undo(run_dir)
    assert len(os.listdir(work / "cache")) == 2


def test_what_only_looks_like_a_run_is_left_alone(tmp_path: Path, work: Path) -> None:
    """Anybody may write to a folder for temporary files."""
    write_old(work / "mine")
    planted = tmp_path / "results" / "planted"
    planted.mkdir(parents=True)
    (planted / ".dsopt-run").symlink_to(work / "mine")
    run_dir = RunDir.create(tmp_path / "elsewhere", "a")
    run(run_dir, work, "save('model.pt')")
    for events in run_dir.all_events():
        events.rename(planted / events.name)
    assert undo_left(planted.parent) == Remains()
    assert files(work).keys() == {"mine", "model.pt"}
    pipe = tmp_path / "results" / "pipe"
    pipe.mkdir()
    os.mkfifo(pipe / ".dsopt-run")
    assert undo_left(planted.parent) == Remains()


@pytest.mark.usefixtures("silence")
def test_a_folder_of_the_same_name_on_another_machine_is_left_alone(tmp_path: Path, work: Path) -> None:
    make_run_of_pod_a(tmp_path / "results", work, SAVES_THERE)
    work.rename(tmp_path / "work of pod-a")
    write_old(work / "model.pt", "this machine's")
    time.sleep(1.0)
    assert undo_left(tmp_path / "results", for_training=True) == Remains()
    assert files(work) == {"model.pt": "this machine's"}
