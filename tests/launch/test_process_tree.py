"""Who hears a signal that is meant for a training."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsopt.launch.process_tree import ProcessTree
from tests.studies import until

# as DeepSpeed's: the first heeds nothing, the second SIGTERM, and the training belongs to neither's session
LAUNCHER = """
import signal, subprocess, sys, time
name = sys.argv[1]
if name != "rank":
    inner = subprocess.Popen([sys.executable, __file__, "rank" if name == "launch" else "launch"])
if name == "launch":
    def end(*_):
        inner.kill()
        sys.exit(9)
    signal.signal(signal.SIGTERM, end)
    open("ready", "w").close()
if name == "rank":
    signal.signal(signal.SIGUSR1, lambda *_: open("heard", "w").close())
    open("rank-ready", "w").close()
    time.sleep(600)
inner.wait()
"""


@pytest.fixture
def runner(tmp_path: Path) -> "Iterator[subprocess.Popen[bytes]]":
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    with subprocess.Popen([sys.executable, "launcher.py", "runner"], cwd=tmp_path) as process:
        until(lambda: (tmp_path / "ready").exists() and (tmp_path / "rank-ready").exists())
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2])
def test_a_signal_ends_a_training_whose_launcher_heeds_none(
    runner: "subprocess.Popen[bytes]", number: signal.Signals
) -> None:
    tree = ProcessTree(runner.pid)
    tree.send(number)
    assert runner.wait(timeout=30) == 0  # its own child ended by itself
    tree.wait()
    assert len(tree._known) == 3


def test_a_signal_that_ranks_heed_reaches_them(runner: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    tree = ProcessTree(runner.pid)
    tree.send(signal.SIGUSR1)
    until(lambda: (tmp_path / "heard").exists())
    assert runner.poll() is None
    tree.send(signal.SIGINT)  # to all, as from a terminal
    runner.wait(timeout=30)
    tree.wait()
