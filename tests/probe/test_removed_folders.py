"""Scripts that remove and move whole folders, in any order and by any name: the user's come back as they were."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsopt.launch.beside import began_ns
from dsopt.launch.undone import undo, undo_left
from dsopt.protocol.run_dir import BEGAN_VARIABLE, RUN_DIR_VARIABLE, RunDir
from tests.probe.rank import BEGINNING, files, needs_births, run, write_old

FILE_BY_FILE = """
def remove(folder):
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
    os.rmdir(folder)
"""
WAYS = {
    "renames the last one, and removes it file by file": f"""{FILE_BY_FILE}
for n in range(2):
    os.mkdir("last.new")
    Path("last.new/model.pt").write_text("run")
    os.rename("last", "last.old")
    os.rename("last.new", "last")
    remove("last.old")
""",
    "shifts them, and removes the oldest file by file": f"""{FILE_BY_FILE}
for n in range(3):
    if os.path.exists("last.1"):
        remove("last.1")
    os.rename("last", "last.1")
    os.mkdir("last")
    Path("last/model.pt").write_text("run")
""",
    "exchanges two, and empties one": f"""{FILE_BY_FILE}
os.rename("last", "other")
os.rename("last.1", "last")
os.rename("other", "last.1")
remove("last")
""",
    "removes what a link names, by a slash at its end": """
shutil.rmtree("link/", ignore_errors=True)
os.makedirs("link/", exist_ok=True)
Path("link/model.pt").write_text("run")
""",
    "removes what a link names, by a dot at its end": """
shutil.rmtree("link/.", ignore_errors=True)
""",
    "removes the folder that it works in": """
os.chdir("last")
shutil.rmtree(".", ignore_errors=True)
assert not os.listdir(".")
Path("model.pt").write_text("run")
""",
    "removes the folder that it works in, by its name, and makes it anew": """
os.chdir("last/deep")
shutil.rmtree("../../last")
last = run_dir.path.parents[1] / "work" / "last"
os.makedirs(last / "deep")
(last / "model.pt").write_text("run")
""",
    "puts an archive in its place that has a later date": """
shutil.rmtree("last")
os.mkdir("last")
Path("last/model.pt").write_text("run")
os.utime("last/model.pt", (time.time() + 3600,) * 2)
""",
    "moves files while the clock is set back": """
os.rename("last/model.pt", "last/a")
now = time.time_ns
time.time_ns = lambda: now() - 5_000_000_000
os.rename("last/a", "last/b")
""",
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    needs_births(tmp_path)
    for name in ("last/model.pt", "last/deep/meta.json", "last.1/model.pt", "disk/model.pt"):
        write_old(tmp_path / "work" / name, f"the user's {name}")
    (tmp_path / "work" / "link").symlink_to("disk")
    return tmp_path / "work"


@pytest.mark.parametrize("way", WAYS)
def test_what_was_in_a_folder_comes_back(work: Path, way: str) -> None:
    if "file by file" in way or "empties" in way:
        (work / "last/deep/meta.json").rename(work / "last/meta.json")
        (work / "last/deep").rmdir()
    before, script = files(work), WAYS[way]
    run_dir = RunDir.create(work.parent / "results", "r")
    run(run_dir, work, script)
    undo(run_dir)
    assert files(work) == before
    assert run_dir.undone.exists()


def test_a_folder_keeps_its_mode_and_a_link_to_a_folder_is_no_folder(work: Path) -> None:
    (work / "last.1").chmod(0o2770)
    run_dir = RunDir.create(work.parent / "results", "r")
    script = f"""{FILE_BY_FILE}
remove("last.1")
for path in ("link", "link/", "link/."):
    try:
        os.rmdir(path)
        raise AssertionError(path)
    except OSError as error:
        print(error.errno)
"""
    plain = run(run_dir, work, script)
    assert plain.split() == ["20", "20", "22"]  # ENOTDIR, ENOTDIR, EINVAL, as without dsopt
    undo(run_dir)
    assert stat.S_IMODE((work / "last.1").stat().st_mode) == 0o2770


@pytest.mark.parametrize("how", ["appends", "replaces"])
def test_what_another_program_writes_to_a_file_that_the_run_has_replaced_is_kept(work: Path, how: str) -> None:
    write_old(work / "train.log")
    theirs = "echo theirs >> train.log" if how == "appends" else "echo theirs > new && mv new train.log"
    run_dir = RunDir.create(work.parent / "results", "r")
    run(
        run_dir,
        work,
        f"import subprocess\nopen('train.log', 'w').write('run ')\nsubprocess.run({theirs!r}, shell=True)",
    )
    undo(run_dir)
    assert (work / "train.log").read_text() == "the user's"
    kept = [text for name, text in files(run_dir.replaced).items() if name.endswith("train.log")]
    assert any("theirs" in text for text in kept)


def test_a_model_is_saved_beside_what_the_script_has_written_itself(work: Path) -> None:
    run_dir = RunDir.create(work.parent / "results", "r")
    run(
        run_dir,
        work,
        """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
os.mkdir("init")
Path("init/tokenizer.json").write_text("{}")
small = GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=16, n_positions=8, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(small)
model.save_pretrained("init")
GPT2LMHeadModel.from_pretrained("init")
with open("c.pt", "wb") as file:
    file.write(b"placeholder")
torch.save(weights, "c.pt")
assert torch.load("c.pt") == weights
""",
    )
    undo(run_dir)
    assert set(files(work / "init")) <= {"tokenizer.json"} and not (work / "c.pt").exists()


def test_a_model_is_saved_into_a_folder_of_the_users(work: Path) -> None:
    last = work / "model"
    last.mkdir()
    for name in ("README.md", "config.json", "model.safetensors"):
        (last / name).write_text("the user's")
        os.utime(last / name, (1e9, 1e9))
    before = files(work)
    time.sleep(0.05)
    run_dir = RunDir.create(work.parent / "results", "r")
    run(
        run_dir,
        work,
        """
from transformers import GPT2Config, GPT2LMHeadModel
small = GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=16, n_positions=8, bos_token_id=0, eos_token_id=0)
for _ in range(2):
    GPT2LMHeadModel(small).save_pretrained("model")
    GPT2LMHeadModel.from_pretrained("model")
""",
    )
    assert files(work) != before
    undo(run_dir)
    assert files(work) == before


def test_a_worker_undoes_what_nobody_has_undone(work: Path) -> None:
    before, results = files(work), work.parent / "results"
    run_dir = RunDir.create(results, "r")
    run(run_dir, work, "shutil.rmtree('last')")
    undo_left(results)
    assert files(work) != before  # it may go on: it has told something just now
    for path in run_dir.path.iterdir():
        os.utime(path, (1e9, 1e9))
    undo_left(results)
    assert files(work) == before and run_dir.undone.exists()


def test_what_one_rank_moves_into_a_hidden_folder_elsewhere_another_may_remove(work: Path) -> None:
    (work.parent / ".trash").mkdir()
    before = files(work)
    run_dir = RunDir.create(work.parent / "results", "r")
    run(run_dir, work, "os.rename('disk/model.pt', '../.trash/log')")
    run(run_dir, work, "os.remove('../.trash/log'); assert not os.path.exists('../.trash/log')")
    undo(run_dir)
    assert files(work) == before


TWO = {
    "renames, removes": ("os.rename(out / 'last.pt', out / 'prev.pt')", "os.remove(out / 'prev.pt')"),
    "writes anew, both": ("os.remove(out / 'log'); (out / 'log').write_text('A')", "(out / 'log').write_text('B')"),
    "empties, both": ("shutil.rmtree(out); os.makedirs(out); (out / 'log').write_text('A')",) * 2,
}


@pytest.mark.parametrize("is_first_first", [True, False])
@pytest.mark.parametrize("way", TWO)
def test_two_studies_of_unlike_folders_put_back_one_folder(work: Path, way: str, is_first_first: bool) -> None:
    out, runs = work / "last", list[tuple[RunDir, subprocess.Popen[str]]]()
    for name in ("log", "last.pt"):
        write_old(out / name)
    before = files(out)
    for name, act in zip("AB", TWO[way], strict=True):
        folder, run_dir = work / name, RunDir.create(work.parent / f"results{name}", "r")
        folder.mkdir()
        began = str(began_ns(run_dir, folder, 100.0))
        environment = {**os.environ, RUN_DIR_VARIABLE: str(run_dir.path), BEGAN_VARIABLE: began}
        script = f"{BEGINNING}out = Path({str(out)!r})\n{act}\nprint('done', flush=True)\nsys.stdin.read()"
        command = [sys.executable, "-c", script, str(run_dir.path)]
        rank = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert rank.stdout is not None and rank.stdout.readline() == "done\n"
        runs.append((run_dir, rank))
    for run_dir, rank in runs if is_first_first else reversed(runs):
        rank.communicate()
        undo(run_dir)
    assert files(out) == before


def test_a_script_that_removes_until_one_is_missing_ends(work: Path) -> None:
    run_dir = RunDir.create(work.parent / "results", "r")
    run(
        run_dir,
        work,
        """
from itertools import count
isolation._known.skips(Path.cwd() / "out")
for n in count():
    try:
        os.remove(f"out/shard_{n}.tmp")
    except FileNotFoundError:
        break
""",
    )


@pytest.mark.parametrize("has_births", [True, False])
def test_folders_that_the_script_makes_and_removes_do_not_come_back(work: Path, has_births: bool) -> None:
    write_old(work / "last/model.pt")
    before = set(work.rglob("*"))
    script = f"""{FILE_BY_FILE}
from dsopt.probe import aside
from dsopt.protocol import birth
if not {has_births}:  # as on an overlay
    birth.birth_ns = aside.birth_ns = lambda path: None
with tempfile.TemporaryDirectory(dir=".") as folder:
    Path(folder, "log").write_text("run")
os.mkdir("new")
os.rmdir("new")
os.rename("last.1", "last.2")
remove("last.2")
"""
    run_dir = RunDir.create(work.parent / "results", "r")
    run(run_dir, work, script)
    undo(run_dir)
    assert set(work.rglob("*")) == before
    assert (work / "last.1/model.pt").read_text() == "the user's last.1/model.pt"
