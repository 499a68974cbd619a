"""The examples of `docs/api.md` run as they stand, in order, in an empty folder."""

import importlib.util
import json
import os
import re
from pathlib import Path

import pytest

import dsopt
from tests.conftest import SCRIPTS

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "api.md"
BLOCK = re.compile(r"^```(python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, its configuration, and in front of the path a launcher that trains nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSOPT_STORAGE", f"sqlite:///{tmp_path / 'examples.db'}")
    monkeypatch.setenv("PATH", f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "train.py").write_text("raise SystemExit('the launcher of the tests runs no script')\n")
    config = {"train_micro_batch_size_per_gpu": [4, 8], "zero_optimization": {"stage": [1]}}
    (tmp_path / "ds_config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.slow
def test_the_examples_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    ran = 0
    for match in BLOCK.finditer(DOCUMENT.read_text()):
        kind, text = match.groups()
        if kind == "yaml":
            (folder / "my-study.yaml").write_text(text)
            continue
        if "trials_dataframe" in text and importlib.util.find_spec("pandas") is None:
            continue
        exec(compile(text, f"{DOCUMENT.name}, character {match.start()}", "exec"), names)
        ran += 1
    assert ran >= 9
    printed = capsys.readouterr().out
    assert "times the baseline (95 % interval" in printed
    assert "Did you mean 'my-study'?" in printed
    assert "| vanilla" in printed
    assert {known.name for known in dsopt.list_studies()} == {"my-study", "train", "watched", "beside", "train-compare"}
