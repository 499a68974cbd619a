"""A rank of a run, as a script that does something to files, and what is there after it."""

import os
from pathlib import Path

import pytest

from dsopt.protocol import birth
from dsopt.protocol.run_dir import BEGAN_VARIABLE, RunDir
from tests.fork_server import run_script

BEGINNING = """
import os, shutil, sys, tempfile, time
from pathlib import Path
from dsopt.probe.isolation import Isolation
from dsopt.protocol.events import EventWriter, Step
from dsopt.protocol.run_dir import BEGAN_VARIABLE, RunDir
run_dir = RunDir(Path(sys.argv[1]))
isolation, writer = Isolation(), EventWriter(run_dir, 0)
isolation.activate(writer, run_dir)
writer.emit(Step(rank=0, step=1, seconds=1.0, samples=1))
weights = {"step": 9}
def save(path):
    import torch
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    torch.save(weights, path)
"""


def run(run_dir: RunDir, work: Path, script: str, began_ns: int | None = None, *, beginning: str = BEGINNING) -> str:
    """Runs it in a working folder, and returns what it prints."""
    environment = {**os.environ} | ({BEGAN_VARIABLE: str(began_ns)} if began_ns is not None else {})
    code, output, errors = run_script(beginning + script, [str(run_dir.path)], work, environment, seconds=120)
    assert code == 0, errors
    return output


def needs_births(folder: Path) -> None:
    """Skips a test where the file system does not tell when a file was made: an overlay, or one of a network."""
    if birth._kind_of(folder) not in birth._LOCAL or birth.birth_ns(folder) is None:
        pytest.skip("this file system does not tell when a file was made")


def write_old(path: Path, text: str = "the user's") -> None:
    """A file that is older than any run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1e9, 1e9))


def files(folder: Path) -> dict[str, str]:
    links = {str(p.relative_to(folder)): f"to {p.readlink()}" for p in folder.rglob("*") if p.is_symlink()}
    plain = [p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()]
    return {str(p.relative_to(folder)): p.read_text(errors="replace") for p in plain} | links
