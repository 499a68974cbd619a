"""Where ranks of several nodes meet, and where none start: each node knows its own ports and trainings."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsopt.launch.device_locks import release, reserve
from dsopt.launch.devices import DevicePool, free_ports
from dsopt.launch.trainings import Mark
from dsopt.study.own_programs import own_environment, own_program


@pytest.fixture
def part() -> Iterator["subprocess.Popen[str]"]:
    """The program that a worker starts on a node."""
    process = subprocess.Popen(
        own_program("dsopt.launch.part"),
        env=own_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def asked(part: "subprocess.Popen[str]", port: int, address: str | None) -> dict[str, object]:
    assert part.stdin is not None and part.stdout is not None
    part.stdin.write(json.dumps({"look": port, "address": address}) + "\n")
    part.stdin.flush()
    for line in part.stdout:
        if "port" in (answer := json.loads(line)):
            return answer
    raise AssertionError("it has ended")


def test_a_port_that_is_free_there_is_taken(part: "subprocess.Popen[str]") -> None:
    port = next(free_ports())
    assert asked(part, port, "127.0.0.1") == {"address": "127.0.0.1", "port": port}


def test_for_one_that_is_taken_there_another_is_found(part: "subprocess.Popen[str]") -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        found = asked(part, port, None)["port"]
    assert isinstance(found, int) and found != port
    with socket.socket() as free:
        free.bind(("", found))


def test_nothing_starts_on_a_device_of_a_training(part: "subprocess.Popen[str]", tmp_path: Path) -> None:
    """The database of the worker that asks knows nothing of it, whichever that is."""
    reserved = reserve(DevicePool(kind="cpu", indices=(1,)), "here", Mark(script="t.py"))
    empty = {"folders": [], "files": {}, "processes": [], "port": 1, "run_dir": "r", "cwd": str(tmp_path)}
    orders = [{"start": {**empty, "kind": "cpu", "devices": devices}} for devices in ([0, 1], [0])]
    assert part.stdin is not None and part.stdout is not None
    part.stdin.write("".join(f"{json.dumps(order)}\n" for order in orders))
    part.stdin.flush()
    answers = (json.loads(line) for line in part.stdout)
    refusals = (answer["refusal"] for answer in answers if "refusal" in answer)
    assert next(refusals) == "a training of 'dsopt run' has 1 CPU slot there"
    assert next(refusals) is None
    release(reserved)
