"""Signals that come while a worker has not started, or has ended."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

import dsopt as dsopt_api
from dsopt.cli.signals import hear_drains, heeding_signals
from tests.api.dry import dry_run
from tests.conftest import Dsopt


@pytest.mark.parametrize("how", ["stop", "drain"])
def test_a_signal_while_a_worker_starts_is_not_lost(how: str) -> None:
    told: list[str] = []
    number = signal.SIGINT if how == "stop" else signal.SIGUSR1

    def start() -> object:
        os.kill(os.getpid(), number)
        time.sleep(0.01)  # Python runs the handler
        return SimpleNamespace(stop=lambda: told.append("stop"), drain=lambda: told.append("drain"))

    with heeding_signals(start):  # type: ignore[arg-type]
        assert told == [how]


def test_a_hang_up_that_is_ignored_stays_so() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with heeding_signals(lambda: SimpleNamespace()):  # type: ignore[arg-type, return-value]
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_drain_before_a_worker_starts_is_not_lost() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    told: list[str] = []
    try:
        hear_drains()
        os.kill(os.getpid(), signal.SIGUSR1)
        with heeding_signals(lambda: SimpleNamespace(drain=lambda: told.append("drain"))):  # type: ignore[arg-type, return-value]
            assert told == ["drain"]
        os.kill(os.getpid(), signal.SIGUSR1)  # it has ended
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_drain_does_not_end_a_worker_that_tells_of_its_end(dsopt: Dsopt) -> None:
    """A Slurm job whose last run ended at that moment failed, with its study finished."""
    dsopt_api.create_study(dry_run(dsopt.cwd), storage=dsopt.environment["DSOPT_STORAGE"]).run("cpu:1")
    [study] = dsopt.json("study", "list")
    worker = dsopt.start("worker", study["name"])
    assert worker.stdout is not None
    told = worker.stdout.readline()
    worker.send_signal(signal.SIGUSR1)
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, told + output
    assert "is finished." in told + output
