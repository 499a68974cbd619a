"""Runs of several studies in one working folder, and several processes that undo the same run."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dsopt.launch import undone
from dsopt.launch.outside import note_before
from dsopt.launch.undone import Remains, undo, undo_left
from dsopt.protocol.run_dir import RunDir
from tests.probe.rank import files, needs_births, run, write_old
from tests.probe.test_every_way_to_save import FROM_THE_START

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
    run_dir.set_aside("warm")
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


def test_what_a_run_did_on_a_machine_that_is_gone_is_undone_by_another_one(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the same folders, as in a cluster; in Kubernetes, each pod is a machine of its own name."""
    needs_births(tmp_path)
    write_old(work / "model.pt")
    time.sleep(0.05)
    run_dir = RunDir.create(tmp_path / "results", "a", "database", "boot/1 2 3.0 pod-a")
    note_before(run_dir, work, [tmp_path / "results"])
    on_pod_a = "import platform\nplatform.node = lambda: 'pod-a'\n" + FROM_THE_START
    saves = "begins()\nos.remove('model.pt')\nsave('model.pt')\nsave('out/last.pt')\nPath('out/state').write_text('9')"
    run(run_dir, work, saves, beginning=on_pod_a)
    assert undo_left(tmp_path / "results", for_training=True).waiting == (run_dir.path,)  # it may go on
    monkeypatch.setattr(undone, "_SAVING_NS", SOON_NS)
    assert undo_left(tmp_path / "results", for_training=True).waiting == (run_dir.path,)  # its clock is its own
    monkeypatch.setattr(undone, "_ELSEWHERE_NS", 0)
    time.sleep(1.0)
    assert undo_left(tmp_path / "results", for_training=True) == Remains()
    assert files(work) == {"model.pt": "the user's"}
    assert os.listdir(work) == ["model.pt"]
    assert not run_dir.undone_on("pod-a").exists()  # if it was only suspended, it looks itself


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


def test_a_folder_of_the_same_name_on_another_machine_is_left_alone(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_births(tmp_path)
    write_old(work / "model.pt")
    run_dir = RunDir.create(tmp_path / "results", "a", "database", "boot/1 2 3.0 pod-a")
    note_before(run_dir, work, [tmp_path / "results"])
    on_pod_a = "import platform\nplatform.node = lambda: 'pod-a'\n" + FROM_THE_START
    run(run_dir, work, "begins()\nos.remove('model.pt')\nsave('model.pt')", beginning=on_pod_a)
    work.rename(tmp_path / "work of pod-a")
    write_old(work / "model.pt", "this machine's")
    monkeypatch.setattr(undone, "_SAVING_NS", SOON_NS)
    monkeypatch.setattr(undone, "_ELSEWHERE_NS", 0)
    time.sleep(1.0)
    assert undo_left(tmp_path / "results", for_training=True) == Remains()
    assert files(work) == {"model.pt": "this machine's"}
