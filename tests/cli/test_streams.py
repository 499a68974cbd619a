"""What a command does where its output is closed, or cannot show every character."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Dsopt
from tests.studies import write_study


@pytest.fixture
def studied(dsopt: Dsopt) -> Dsopt:
    """With a study whose summary has characters of no small character set."""
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    return dsopt


def run(dsopt: Dsopt, words: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    """Runs a command in a shell."""
    whole = f"exec {sys.executable} -m dsopt {words}"
    environment = {**dsopt.environment, **variables}
    return subprocess.run(["sh", "-c", whole], cwd=dsopt.cwd, env=environment, capture_output=True, timeout=120)


def test_what_an_encoding_lacks_is_replaced(studied: Dsopt) -> None:
    done = run(studied, "study show simulated", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "simulated  created  ?  0 runs" in done.stdout.decode("ascii")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_output_is_no_mistake(studied: Dsopt, closed: str) -> None:
    assert run(studied, f"study show simulated {closed}").returncode == 0
    assert run(studied, f"study show nothing {closed}").returncode == 1


def test_no_file_gets_the_number_of_a_closed_output(tmp_path: Path) -> None:
    code = (
        "import os; from dsopt.cli.streams import prepare_streams; prepare_streams();"
        "file = open('written', 'w'); file.write(str([os.readlink(f'/proc/self/fd/{n}') for n in range(3)]))"
    )
    subprocess.run(["sh", "-c", f'exec {sys.executable} -c "{code}" <&- >&- 2>&-'], cwd=tmp_path, check=True)
    assert (tmp_path / "written").read_text() == str(["/dev/null"] * 3)
