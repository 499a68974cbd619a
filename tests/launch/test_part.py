"""Where ranks of several nodes meet: a port that is free on the node of rank 0, whatever is free on the worker's."""

import json
import socket
import subprocess
from collections.abc import Iterator

import pytest

from dsopt.launch.devices import free_ports
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
