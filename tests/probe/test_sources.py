"""A training tells which of its user's files it is made of, and what they hold."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import Sources
from dsopt.protocol.run_dir import RunDir
from dsopt.study.own_sources import changed_files, sources_now
from tests.made_up import spec

SCRIPT = """
import sys
from pathlib import Path
from dsopt.probe.sources import OwnFiles
from dsopt.protocol.events import EventWriter
from dsopt.protocol.run_dir import RunDir
run_dir = RunDir(Path(sys.argv[1]))
own = OwnFiles(EventWriter(run_dir, 0), run_dir)
import click, json, models.gpt, shared
Path("written.py").write_text("LAYERS = 12")  # anew in each run
import written
import os
os.chdir("/")
own.tell()
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
    digest = hashlib.sha256(b"LAYERS = 12").hexdigest()[:16]
    assert told.files == {
        "train.py": hashlib.sha256(SCRIPT.encode()).hexdigest()[:16],
        **dict.fromkeys(["models/__init__.py", "models/gpt.py", "written.py", str(elsewhere / "shared.py")], digest),
    }


def test_of_very_many_modules_their_folders_are_told(tmp_path: Path) -> None:
    work, run_dir = tmp_path / "work", RunDir.create(tmp_path, "run")
    (work / "lib").mkdir(parents=True)
    for number in range(240):
        (work / f"lib/m{number}.py").write_text(f"NUMBER = {number}")
    imports = "\n".join(f"import lib.m{number}" for number in range(240))
    (work / "train.py").write_text(SCRIPT.replace("import click, json, models.gpt, shared", imports))
    told = []
    for text in ("NUMBER = 235", "NUMBER = -1"):
        (work / "lib/m235.py").write_text(text)
        subprocess.run([sys.executable, "train.py", str(run_dir.path)], cwd=work, check=True, timeout=60)
        told += [event.files for event in EventReader(run_dir).read() if isinstance(event, Sources)][-1:]
    assert set(told[0]) == {"./", "lib/"}
    study = spec().model_copy(update={"cwd": str(work)})
    assert changed_files(told[0], sources_now(study, told[0])) == ["lib/"] == changed_files(told[0], told[1])


def test_settings_that_a_script_reads_are_told(tmp_path: Path) -> None:
    """A model's sizes in a file that the command names, or that the script finds itself, make it another model."""
    work, run_dir = tmp_path / "work", RunDir.create(tmp_path / "work/exps", "run")
    (work / "conf").mkdir(parents=True)
    texts = {
        "conf/model.yaml": "layers: 12",
        "state.json": "{}",
        "written.yaml": "",
        "named.json": "{}",
        "unread.yaml": "",
        "notes.txt": "",
        "data.json": "",
    }
    for name, text in texts.items():
        (work / name).write_text(text)
    (work / "data.json").write_bytes(b" " * (1 << 20 | 1))
    (tmp_path / "elsewhere.yaml").write_text("layers: 12")
    (tmp_path / "other.yaml").write_text("")
    (run_dir.path / "ds_config.json").write_text("{}")
    read = [*texts, sys.argv[0], f"{run_dir.path}/ds_config.json", "../elsewhere.yaml", "../other.yaml", "missing.yaml"]
    reading = f"""
for name in {[name for name in read if name != "unread.yaml"]}:
    if os.path.exists(name):
        open(name, "rb").read()
Path("written.yaml").write_text("again")
own.tell()
own.tell()
"""
    beginning = SCRIPT.partition("import click")[0] + "import os\n"
    (work / "train.py").write_text(beginning + reading)
    words = [sys.executable, "train.py", str(run_dir.path), f"--config={tmp_path}/elsewhere.yaml", "named.json"]
    words += ["--deepspeed_config", str(run_dir.ds_config)]  # the run's own, as every run is called
    subprocess.run(words, cwd=work, check=True, timeout=60)
    [told] = [event for event in EventReader(run_dir).read() if isinstance(event, Sources)]
    digest = hashlib.sha256(b"layers: 12").hexdigest()[:16]
    assert set(told.files) == {"train.py", "conf/model.yaml", "named.json", f"{tmp_path}/elsewhere.yaml"}
    assert told.files["conf/model.yaml"] == told.files[f"{tmp_path}/elsewhere.yaml"] == digest
