"""Scripts that rotate their checkpoints: they work as without dsopt, and afterwards the user's files are as before."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsopt.launch.undone import undo
from dsopt.protocol import kept
from dsopt.protocol.run_dir import RunDir
from tests.probe.rank import BEGINNING, files, needs_births, run, write_old

STAGED = "as a folder that is put in the place of the last one, twice"
WAYS = {
    "those beyond the last three": """
import glob
while len(glob.glob("ckpt_*.pt")) > 3:
    os.remove(sorted(glob.glob("ckpt_*.pt"))[0])
assert sorted(glob.glob("ckpt_*.pt")) == ["ckpt_2.pt", "ckpt_3.pt", "ckpt_4.pt"]
""",
    "file by file": """
for name in os.listdir("last"):
    os.remove("last/" + name)
os.rmdir("last")
assert not os.path.exists("last")
""",
    STAGED: """
for _ in range(2):
    os.mkdir("last.tmp")
    save("last.tmp/model.pt")
    Path("last.tmp/meta.json").write_text("{}")
    if os.path.exists("last"):
        shutil.rmtree("last")
    os.rename("last.tmp", "last")
""",
    "by a temporary file that is open": """
import torch
for _ in range(3):
    with tempfile.NamedTemporaryFile(dir=".", delete=False) as file:
        torch.save(weights, file)
    os.replace(file.name, "ckpt_1.pt")
assert torch.load("ckpt_1.pt") == weights
""",
    "into a file that is open": """
import torch
for name in ("snapshot", "model.bin", "ckpt_1.pt"):
    with open(name, "wb") as file:
        torch.save(weights, file)
assert torch.load("ckpt_1.pt") == weights
""",
    "in a folder that it then removes": """
save("last/snapshot")
shutil.rmtree("last")
""",
    "in a folder that it then moves and removes": """
save("last/deep/snapshot")
os.rename("last/deep", "last/moved")
shutil.rmtree("last")
""",
    "as it does not know that the last was not saved": """
save("ckpt_4.pt")
shutil.copy("ckpt_4.pt", "best.pt")
""",
    "by a process that it forked before its first step": """
writer._stepped[0] = 0
child = os.fork()
if not child:
    while not writer.has_stepped:
        time.sleep(0.001)
    save("snapshot")
    os._exit(0)
writer.emit(Step(rank=0, step=1, seconds=1.0, samples=1))
assert os.waitpid(child, 0)[1] == 0
""",
    "over an empty one": """
save("empty.pt")
assert os.path.getsize("empty.pt")
""",
    "in a hidden folder elsewhere": """
os.remove("../.kept/last.pt")
os.replace("../.kept/best.pt", "../.kept/last.pt")
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_rotation_works_and_comes_to_nothing(tmp_path: Path, way: str) -> None:
    work = tmp_path / "work"
    for name in (*(f"ckpt_{n}.pt" for n in range(1, 5)), "last/model.pt", "last/meta.json"):
        write_old(work / name)
    for name in ("last.pt", "best.pt"):
        write_old(tmp_path / ".kept" / name)
    write_old(work / "empty.pt", "")
    before, hidden = files(work), files(tmp_path / ".kept")
    for _ in range(2):
        run_dir = RunDir.create(tmp_path / "results", "r")
        run(run_dir, work, WAYS[way])
        undo(run_dir)
        assert files(work) == before
        assert files(tmp_path / ".kept") == hidden
        assert run_dir.undone.exists() and not run_dir.aside.exists()


def test_ranks_see_what_another_has_removed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    for name in ("out/model.pt", "out/rank1/log"):
        write_old(work / name)
    before, run_dir = files(work), RunDir.create(tmp_path / "results", "r")
    other = BEGINNING.replace("run_dir, 0", "run_dir, 1") + "os.makedirs('out/rank1')"
    script = f"""
import subprocess
shutil.rmtree("out")
os.makedirs("out/rank0")
subprocess.run([sys.executable, "-c", {other!r}, sys.argv[1]], check=True)
"""
    run(run_dir, work, script)
    undo(run_dir)
    assert files(work) == before


def test_what_a_script_believes_to_have_saved_it_may_move_and_remove(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    script = """
from deepspeed.runtime.engine import DeepSpeedEngine
engine = object.__new__(DeepSpeedEngine)
for tag in ("step1", "step2"):
    assert engine.save_checkpoint("out", tag)
shutil.rmtree("out/step1")
os.rename("out/step2", "out/last")
shutil.rmtree("out/last")
try:
    os.remove("other")
except FileNotFoundError:
    print("as always")
"""
    assert run(RunDir.create(tmp_path / "results", "r"), work, script).endswith("as always\n")
    assert files(work) == {}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user's on another file system than the run's and the working folder."""
    folder = Path("/dev/shm") / f"dsopt-{os.getpid()}" / "exp"
    if folder.parent.exists() or folder.parent.parent.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs another file system")
    yield folder
    subprocess.run(["rm", "-r", folder.parent], check=True)


EMPTIED = {
    "by iterating": """
for path in out.iterdir():
    if path.name != "logs":
        shutil.rmtree(path) if path.is_dir() else path.unlink()
""",
    "file by file": """
for folder, _, names in os.walk(out):
    for name in names:
        os.remove(os.path.join(folder, name))
""",
    "by moving all": """
backup = out.parent / "backup"
backup.mkdir()
for path in list(out.iterdir()):
    shutil.move(path, backup)
""",
    "twice": """
for _ in range(2):
    shutil.rmtree(out)
    (out / "logs").mkdir(parents=True)
    (out / "logs" / "train.log").write_text("of the run")
""",
}


@pytest.mark.parametrize("way", EMPTIED)
def test_a_script_that_empties_its_folder_on_another_disk(elsewhere: Path, tmp_path: Path, way: str) -> None:
    needs_births(elsewhere.parent.parent)
    for name in ("logs/train.log", "run.csv"):
        write_old(elsewhere / name)
    before, run_dir = files(elsewhere.parent), RunDir.create(tmp_path / "results", "r")
    (tmp_path / "work").mkdir()
    run(
        run_dir, tmp_path / "work", f"out = Path({str(elsewhere)!r})\nopen(out / 'logs/train.log', 'w')\n{EMPTIED[way]}"
    )
    undo(run_dir)
    assert files(elsewhere.parent) == before
    assert run_dir.undone.exists()


def test_what_dsopt_keeps_in_a_folder_that_is_all_of_its_disk(tmp_path: Path) -> None:
    """The script comes by it when it empties the folder, and cannot remove it."""
    work = tmp_path / "work"
    write_old(work / "out" / "log")
    run_dir = RunDir.create(tmp_path / "results", "r")
    script = """
from dsopt.probe import aside
aside._device_of = lambda folder: os.stat(folder).st_dev if "out" in Path(folder).parts else None
open("out/log", "w")
for path in Path("out").iterdir():
    shutil.rmtree(path) if path.is_dir() else path.unlink()
for path in Path("out").rglob("*"):
    path.unlink() if path.is_file() else os.rename(path, "moved")
assert not os.path.exists("moved")
"""
    run(run_dir, work, script)
    undo(run_dir)
    assert files(work) == {"out/log": "the user's"}


LARGE = {
    "begun anew": "open('log', 'w').write('x')",
    "moved, and removed": "os.rename('log', 'log.1'); open('log', 'w').write('x'); os.remove('log.1')",
    "removed": "os.remove('log')",
}


@pytest.mark.parametrize("way", LARGE)
def test_a_large_file_that_is_written_to_stays_the_users_without_births(tmp_path: Path, way: str) -> None:
    """As on an overlay: the date of change alone tells how old it is, and the run has changed that."""
    work = tmp_path / "work"
    write_old(work / "log")
    script = f"""
from dsopt.probe import aside, writing
from dsopt.protocol import birth
birth.birth_ns = lambda path: None
writing._LARGEST_COPY = 0
with open("log", "a") as file:
    file.write(" more")
{LARGE[way]}
"""
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, script)
    undo(run_dir)
    assert files(work) == {"log": "the user's more"}


def test_lines_of_another_program_in_a_file_that_stays_in_its_place(tmp_path: Path) -> None:
    """They are with the run, where what was there comes back."""
    work = tmp_path / "work"
    write_old(work / "log")
    run_dir = RunDir.create(tmp_path / "results", "r")
    script = """
isolation._known.aside.keep = lambda path: (_ for _ in ()).throw(OSError(16, "a mount"))
open("log", "a").write(" of the run")
"""
    run(run_dir, work, script)
    with (work / "log").open("a") as log:
        log.write(" of another")
    undo(run_dir)
    assert files(work) == {"log": "the user's"}
    assert list(files(run_dir.replaced).values()) == ["the user's of the run of another"]


def test_weights_that_may_be_the_users_are_kept_where_nobody_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank was killed while it saved, and somebody has saved to the same file since."""
    work = tmp_path / "work"
    work.mkdir()
    run_dir = RunDir.create(tmp_path / "results", "r")
    command = [
        sys.executable,
        "-c",
        f"{BEGINNING}isolation._known.telling.begins(Path.cwd() / 'last.pt')",
        run_dir.path,
    ]
    subprocess.run(command, cwd=work, check=True)
    (work / "last.pt").write_text("trained since")
    undo(run_dir, is_late=True)
    assert files(work) == {}
    assert list(files(run_dir.replaced).values()) == ["trained since"]


@pytest.mark.parametrize("how", ["shutil.copy", "shutil.copy2", "os.replace"])
@pytest.mark.parametrize("name", ["best.pt", "snapshot"])
def test_what_another_training_has_saved_since_comes_back(tmp_path: Path, how: str, name: str) -> None:
    """It is as young as what the run itself has saved."""
    run_dir, work = RunDir.create(tmp_path / "results", "r"), tmp_path / "work"
    work.mkdir()
    (work / name).write_text("of another")
    run(run_dir, work, f"save('new'); {how}('new', '{name}')")
    undo(run_dir)
    assert files(work) == {name: "of another"}


RANKS = """
for rank in (0, 1, 0, 1):
    child = os.fork()
    if not child:
        writer.rank = rank
        save(f"new{rank}.tmp")
        %s
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
BY_RANKS = {
    "put in the place of the last": 'os.replace(f"new{rank}.tmp", "last.pt")',
    "copied": 'shutil.copy(f"new{rank}.tmp", "last.pt")',
    "moved on by another": 'rank and os.replace("last.pt", "prev.pt"); os.replace(f"new{rank}.tmp", "last.pt")',
}


@pytest.mark.parametrize("how", BY_RANKS)
@pytest.mark.parametrize("has_one", [True, False])
def test_what_several_ranks_save_in_turn_goes_with_the_run(tmp_path: Path, how: str, has_one: bool) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in ("last.pt", "prev.pt") if has_one else ():
        write_old(work / name)
    before, run_dir = files(work), RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, RANKS % BY_RANKS[how])
    undo(run_dir)
    assert files(work) == before


@pytest.mark.parametrize("again", ["", "save('last/model.pt')"])
def test_what_is_saved_in_a_folder_that_is_removed_does_not_come_back_with_it(tmp_path: Path, again: str) -> None:
    work = tmp_path / "work"
    write_old(work / "last" / "config.json")
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, f"save('last/model.pt'); shutil.rmtree('last'); {again}")
    undo(run_dir)
    assert files(work) == {"last/config.json": "the user's"}


def test_what_is_saved_in_a_folder_that_was_moved_and_is_removed_does_not_come_back_with_it(tmp_path: Path) -> None:
    work = tmp_path / "work"
    write_old(work / "last" / "config.json")
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, "os.rename('last', 'old'); save('old/extra'); shutil.rmtree('old')")
    undo(run_dir)
    assert files(work) == {"last/config.json": "the user's"}


@pytest.mark.parametrize("how", ["shutil.copy('new', '{}')", "os.replace('new', '{}')", "os.remove('{}')"])
def test_a_checkpoint_in_a_hidden_folder_elsewhere_comes_back(tmp_path: Path, how: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    write_old(tmp_path / ".kept" / "best.pt")
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, f"save('new'); {how.format('../.kept/best.pt')}")
    undo(run_dir)
    assert files(tmp_path / ".kept") == {"best.pt": "the user's"} and files(work) == {}


CLOSED = {
    "at once": "shutil.rmtree(out, ignore_errors=True); os.makedirs(out, exist_ok=True); save(out / 'ckpt.pt')",
    "after some of its files": """
os.remove(out / "ckpt_1.pt")
open(out / "logs" / "a", "w").close()
shutil.rmtree(out, ignore_errors=True)
""",
}


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, which only root may")
@pytest.mark.parametrize("way", CLOSED)
def test_a_folder_is_removed_whose_own_folder_is_closed_to_us(elsewhere: Path, way: str) -> None:
    """As `/scratch/me`, or a volume of a container, on another disk than the run's."""
    needs_births(elsewhere.parent.parent)
    for name in ("logs/a", "ckpt_1.pt"):
        write_old(elsewhere / name)
    elsewhere.parent.chmod(0o755)
    elsewhere.parent.parent.chmod(0o1777)
    for path in (elsewhere, *elsewhere.rglob("*")):
        os.chown(path, 1234, 1234)
    before = files(elsewhere)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        run_dir = RunDir.create(Path(folder, "results"), "r")
        work = Path(folder, "work")
        work.mkdir()
        for opened in (Path(folder), run_dir.path, run_dir.path.parent, work):
            opened.chmod(0o777)
        run(run_dir, work, f"import torch\nout = Path({str(elsewhere)!r})\nos.seteuid(1234)\n{CLOSED[way]}")
        undo(run_dir)
        assert files(elsewhere) == before
        assert run_dir.undone.exists()


def test_a_kill_between_two_files_that_come_back_to_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks have replaced it, one after the other; the first to be put back is what one of them had made."""
    work = tmp_path / "work"
    write_old(work / "last.pt")
    run_dir = RunDir.create(tmp_path / "results", "r")
    run(run_dir, work, "writer._stepped[0] = 0\n" + RANKS % BY_RANKS["put in the place of the last"])

    def killed(path: Path) -> None:
        note(path)
        raise KeyboardInterrupt

    note = kept.note_returned
    monkeypatch.setattr(kept, "note_returned", killed)
    with pytest.raises(KeyboardInterrupt):
        undo(run_dir)
    monkeypatch.setattr(kept, "note_returned", note)
    undo(run_dir)
    assert files(work)["last.pt"] == "the user's"
