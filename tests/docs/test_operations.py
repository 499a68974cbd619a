"""The commands that stand alone on the pages for those who look after dsopt, on a finished dry run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dsopt
from tests.api.dry import dry_run
from tests.docs.pages import DOCS

COMMAND = re.compile(r"^    ((?:dsopt|eval) .+)$", re.MULTILINE)
ELSEWHERE = ("example.org", "example.com")  # webhooks and addresses: `api/test_notifying.py` has some of its own
ON_ANOTHER = "db restore"  # a database without studies


def commands() -> list[str]:
    """In the order of the pages, without their remarks."""
    text = "\n".join((DOCS / f"{page}.md").read_text("utf-8") for page in ("operations", "security"))
    found = [re.split(r"\s{2,}#", line)[0] for line in COMMAND.findall(text)]
    return [command for command in found if not any(name in command for name in ELSEWHERE)]


def test_they_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/dsopt.db"
    with dsopt.create_study(dry_run(tmp_path), name="my-study", storage=url) as made:
        made.run("cpu:1")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(tmp_path / "config"), "DSOPT_STORAGE": url}
    run = commands()
    assert len(run) >= 6, run
    for command in run:
        other = {"DSOPT_STORAGE": f"sqlite:///{tmp_path}/other.db"} if ON_ANOTHER in command else {}
        own = {**environment, **other}
        ended = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=own, capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
    assert (tmp_path / "runs.csv").stat().st_size and (tmp_path / "runs.parquet").stat().st_size
    listed = ["dsopt", "study", "list", "--json", "--storage", f"sqlite:///{tmp_path}/other.db"]
    [study] = json.loads(subprocess.run(listed, env=environment, capture_output=True, check=True).stdout)
    assert study["name"] == "my-study"
