"""Ranks that are shared: how far they are led, what they are told, and what is left of a script that was left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsopt.experiment.shared import Lead
from dsopt.probe.orders import LeaveScript, Orders

# A script changes all that it may of its process, as the module that it imports does; then it is left.
LEFT = """
import logging, os, signal, sys
from dsopt.probe.parting import Surroundings
before = Surroundings()
paths = list(sys.path)
sys.path.insert(0, {folder!r})
import own
import own_package.part
import yaml
signal.signal(signal.SIGTERM, signal.SIG_IGN)
logging.basicConfig(level=logging.DEBUG)
sys.stdout = open(os.devnull, "w")
sys.meta_path.insert(0, object())
before.restore()
assert sys.path == paths
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
assert logging.root.handlers == []
assert logging.root.level == logging.WARNING
assert not {{"own", "own_package", "own_package.part"}} & set(sys.modules)
assert {{"yaml", "dsopt.probe.parting"}} <= set(sys.modules)
from json import tool
print("restored")
"""
FORGOTTEN = """
from dsopt.probe.memory import HostMemory, forget_host_peak
filled = bytearray(256 * 2**20)
del filled
before = HostMemory().peaks()[0]
assert forget_host_peak()
print(before - HostMemory().peaks()[0])
"""


class Rank:
    """Stands for a rank: keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[dict] = []

    def order(self, order: dict) -> None:
        self.told.append(order)


class GoneRank(Rank):
    """A rank whose process has ended."""

    def order(self, order: dict) -> None:
        raise BrokenPipeError


def limits(rank: Rank) -> list[int]:
    return [order["until"] for order in rank.told if "until" in order]


@pytest.mark.parametrize(
    ("step_seconds", "seen", "expected"),
    [
        (1.0, range(1, 11), [8, 10, 12]),  # two steps ahead at least
        (0.1, range(1, 11), [8, 10, 12]),
        (0.02, range(1, 12), [8, 16, 22]),  # 0.2 seconds ahead
        (0.02, [5, 19], [8, 20, 34]),  # several steps at one look
    ],
)
def test_ranks_are_always_led_a_little_further_than_they_are(
    step_seconds: float, seen: list[int], expected: list[int]
) -> None:
    ranks = [Rank(), Rank()]
    lead = Lead(ranks)
    for steps in seen:
        lead.extend(steps, step_seconds)
    assert limits(ranks[0]) == limits(ranks[1]) == expected


def test_ranks_leave_together_or_not_at_all() -> None:
    ranks = [Rank(), Rank()]
    assert Lead(ranks).end(6, 0.5) == 1.0  # at the eighth step
    assert [rank.told[-1] for rank in ranks] == [{"leave": True}] * 2
    ranks = [Rank(), Rank()]
    assert Lead(ranks).end(2, 30.0) is None  # too far off
    assert [rank.told[-1] for rank in ranks] == [{"until": 8}] * 2
    gone, other = GoneRank(), Rank()
    assert Lead([gone, other]).end(6, 0.5) is None
    assert limits(other) == [8]  # which must not wait for ever for the one that is gone


def test_a_rank_waits_where_it_was_led_to_and_leaves_there() -> None:
    read, write = os.pipe()
    orders = Orders(read)
    run = {"argv": ["python"]}
    lines = [{"until": 3}, {"until": 5}, {"leave": True}, {"run": run}, {"until": 2}, {"leave": True}]
    os.write(write, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    for step in range(1, 5):
        orders.at_step(step)
    with pytest.raises(LeaveScript):
        orders.at_step(5)
    assert orders.next_run() == run
    orders.at_step(1)
    with pytest.raises(LeaveScript):
        orders.at_step(2)
    os.close(write)
    assert orders.next_run() is None
    orders.close()


def test_a_rank_that_nobody_leads_any_more_trains_on() -> None:
    read, write = os.pipe()
    orders = Orders(read)
    os.write(write, b'{"until": 2}\n{"until"')
    os.close(write)
    for step in range(1, 100):
        orders.at_step(step)
    orders.close()


def test_what_a_script_changed_of_its_process_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "own.py").touch()
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").touch()
    (tmp_path / "own_package" / "part.py").touch()
    code = LEFT.format(folder=str(tmp_path))
    told = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert told.stdout == "restored\n", told.stderr


def test_the_kernel_forgets_a_peak_of_memory() -> None:
    told = subprocess.run([sys.executable, "-c", FORGOTTEN], capture_output=True, text=True, check=True).stdout
    assert int(told) > 200 * 2**20
