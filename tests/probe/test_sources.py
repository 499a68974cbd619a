"""A training tells which of its user's files it is made of, and what they hold."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import Sources
from dsopt.protocol.run_dir import RunDir

SCRIPT = """
import sys
from pathlib import Path
from dsopt.probe.sources import OwnFiles
from dsopt.protocol.events import EventWriter
from dsopt.protocol.run_dir import RunDir
own = OwnFiles()
import click, json, models.gpt, shared
Path("models/__init__.py").write_text("# edited while it ran")
import os
os.chdir("/")
own.tell(EventWriter(RunDir(Path(sys.argv[1])), 0))
"""


def test_own_files_are_told_and_no_others(tmp_path: Path) -> None:
    work, elsewhere, run_dir = tmp_path / "work", tmp_path / "elsewhere", RunDir.create(tmp_path, "run")
    (work / "models").mkdir(parents=True)
    elsewhere.mkdir()
    for file in (work / "models/__init__.py", work / "models/gpt.py", elsewhere / "shared.py", work / "unused.py"):
        file.write_text("LAYERS = 12")
    (work / "train.py").write_text(SCRIPT)
    subprocess.run(
        [sys.executable, "train.py", str(run_dir.path)], cwd=work, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(elsewhere)},
    )  # fmt: skip
    [told] = [event for event in EventReader(run_dir).read() if isinstance(event, Sources)]
    edited = told.files["models/__init__.py"]
    assert edited.startswith("changed ")
    assert told.files == {
        "train.py": hashlib.sha256(SCRIPT.encode()).hexdigest()[:16],
        "models/__init__.py": edited,
        "models/gpt.py": (digest := hashlib.sha256(b"LAYERS = 12").hexdigest()[:16]),
        str(elsewhere / "shared.py"): digest,
    }
