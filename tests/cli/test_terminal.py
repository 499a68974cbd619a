"""What a person sees in a real terminal, narrow or wide: nothing is cut, boxes close, and colour is there if wanted."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.api.dry import dry_run
from tests.conftest import Dsopt
from tests.studies import write_study
from tests.terminal import Shown, run_in_terminal

WIDTHS = [60, 80, 140]


def study_in(dsopt: Dsopt, **keys: object) -> list[str]:
    """Writes a dry run, and gives the words that create it."""
    (dsopt.cwd / "dry.yaml").write_text(json.dumps(dry_run(dsopt.cwd, **keys)))
    return ["study", "create", "dry.yaml"]


def shown(dsopt: Dsopt, *words: str, width: int, **variables: str) -> Shown:
    found = run_in_terminal([*words], dsopt.cwd, {**dsopt.environment, **variables}, width=width)
    assert found.code == 0, found.text
    return found


def long_words_apart(text: str) -> set[str]:
    """The words of a text, but for what is longer than a narrow terminal."""
    return {word for word in text.split() if len(word) < min(WIDTHS)}


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut(dsopt: Dsopt, width: int) -> None:
    created = shown(dsopt, *study_in(dsopt), width=width)
    assert created.too_wide(width) == []
    assert "That is your own configuration and 1 other" in " ".join(created.text.split())
    worked = shown(dsopt, "worker", "dry", "--devices", "cpu:1", width=width)
    assert worked.too_wide(width) == []
    assert worked.has_colour
    told = " ".join(worked.text.split())
    assert "Probably at most " in told and "on the cluster, where the first would take " in told
    box = [line.rstrip() for line in worked.lines if line.startswith(("╭", "│", "╰"))]
    assert len(box) > 5
    assert {cell_len(line) for line in box} == {width}
    assert {line[-1] for line in box} == {"╮", "│", "╯"}
    one, wide = (shown(dsopt, "study", "show", "dry", "--why", width=columns) for columns in (width, 400))
    assert one.too_wide(width) == []
    for words in (("study", "best", "dry"), ("diff", "dry"), ("workers",)):
        wide_lines = shown(dsopt, *words, width=width).too_wide(width)
        assert not [line for line in wide_lines if " " in line and not line.startswith(("|", "Command: "))]
    left_out = re.search(r"A wider terminal shows .*, too\.", one.text)
    words = one.text.replace(left_out[0], "") if left_out else one.text
    assert long_words_apart(words) <= long_words_apart(wide.text)  # no word was cut in two


@pytest.mark.slow
def test_who_wants_no_colour_gets_none(dsopt: Dsopt) -> None:
    shown(dsopt, *study_in(dsopt), width=80)
    worked = shown(dsopt, "worker", "dry", "--devices", "cpu:1", width=80, NO_COLOR="1")
    assert not worked.has_colour
    assert not shown(dsopt, "study", "show", "dry", width=80, NO_COLOR="1").has_colour
    assert shown(dsopt, "study", "show", "dry", width=80).has_colour


def test_an_error_is_broken_between_words(tmp_path: Path, dsopt: Dsopt) -> None:
    found = run_in_terminal(["study", "create", str(tmp_path / "none.yaml")], tmp_path, dsopt.environment, width=60)
    assert found.code == 1
    assert all(len(line.rstrip()) <= 60 or " " not in line.strip() for line in found.lines)


def test_a_worker_goes_on_after_its_terminal_is_closed(dsopt: Dsopt) -> None:
    """`dsopt worker & disown`, and the user logs out."""
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dsopt", "worker", "simulated", "--devices", "cpu:2"]
    environment = {**dsopt.environment, "TERM": "xterm-256color"}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    worker = subprocess.Popen(command, cwd=dsopt.cwd, env=environment, start_new_session=True, **streams)
    os.close(theirs)
    _read_until(b"samples/s", ours)
    os.close(ours)
    assert worker.wait(timeout=300) == 0
    assert "finished" in dsopt("study", "list")


def test_what_is_said_in_a_terminal_that_was_closed_ends_nothing(tmp_path: Path) -> None:
    """Also by libraries that write to what lies below Python's streams, while the live view is on."""
    ours, theirs = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    environment = {**os.environ, "TERM": "xterm-256color"}
    command = [sys.executable, "-c", _SAYS, str(tmp_path)]
    process = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
    os.close(theirs)
    shown = _read_until(b"waiting; cpu:1", ours)
    (tmp_path / "seen").touch()
    shown += _read_until(b"a sentence", ours)
    assert b"waiting; cpu:1a sentence" not in shown  # the live view was removed first
    os.close(ours)
    (tmp_path / "closed").touch()
    assert process.wait(timeout=60) == 0
    assert (tmp_path / "over").exists()


def test_errors_that_go_to_a_file_go_there_during_the_live_view(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    for name in ("seen", "closed"):
        (tmp_path / name).touch()
    with (tmp_path / "errors").open("w") as errors:
        subprocess.run([sys.executable, "-c", _SAYS, str(tmp_path)], stdout=theirs, stderr=errors, check=True)
    assert (tmp_path / "errors").read_text() == "a sentence\na warning\na line\n"
    for terminal in (ours, theirs):
        os.close(terminal)


def _read_until(text: bytes, terminal: int) -> bytes:
    shown = b""
    while text not in shown:
        shown += os.read(terminal, 65536)
    return shown


_SAYS = """
import sys, time
from pathlib import Path
import click
from dsopt.cli.live import watch
from dsopt.cli.prose import say
from dsopt.cli.streams import prepare_streams
def wait_for(name):
    while not Path(sys.argv[1], name).exists():
        time.sleep(0.02)
prepare_streams()
with watch("cpu:1"):
    wait_for("seen")
    say("a sentence", err=True)
    wait_for("closed")
    say("a warning", err=True)
    say("a sentence")
    click.echo("a line", err=True)
    click.echo("a line")
Path(sys.argv[1], "over").touch()
"""
