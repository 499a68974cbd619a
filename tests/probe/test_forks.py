"""Processes that a script forks are no ranks."""

import subprocess
import sys
from pathlib import Path

from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import End
from dsopt.protocol.run_dir import RunDir

FORKS = """
import os, sys
from pathlib import Path
from dsopt.protocol.events import End, Error, EventWriter
from dsopt.protocol.run_dir import RunDir
writer = EventWriter(RunDir(Path(sys.argv[1])), 0)
if os.fork() == 0:
    writer.emit(Error(rank=0, type="SystemExit", message="exit code 1"))
    os._exit(1)
os.wait()
writer.emit(End(rank=0))
"""


def test_what_a_forked_process_raises_is_not_the_ranks(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKS, tmp_path], check=True)
    assert list(EventReader(RunDir(tmp_path)).read()) == [End(rank=0)]
