"""What a worker asks Ray for, when it gives that back, and what it says where there is no Ray; without one."""

import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dsopt.errors import DsoptError
from dsopt.launch.placers import ray as ray_placer
from dsopt.launch.placers import with_placer
from dsopt.launch.placers.ray import Ray
from dsopt.launch.ray.bundle import Bundle
from dsopt.launch.ray.connection import Connection
from dsopt.study.wanted import Wanted

NODES = {"a": [2, 8], "b": [2, 8], "c": [4, 8], "head": [0, 8]}


class Driver:
    """Stands for the connection to a driver: what it was asked is noted, and tests answer in its name."""

    def __init__(self, _address: str, take: Callable[[dict[str, Any]], None]) -> None:
        self.first, self.socket, self.problem = {"nodes": NODES}, "/socket", None
        self.take, self.asked = take, []

    def say(self, **request: object) -> None:
        self.asked.append({key: value for key, value in request.items() if key != "list_gpus"})

    def grant(self, key: str, *nodes: str, gpus: tuple[str, ...] = ("0",)) -> None:
        bundles = [{"node": name, "address": f"10.0.0.{i}", "gpus": gpus, "uuids": {}} for i, name in enumerate(nodes)]
        self.take({"granted": key, "bundles": bundles})

    def close(self) -> None:
        pass


@pytest.fixture
def placer(monkeypatch: pytest.MonkeyPatch) -> Ray:
    """A placer whose driver is no process."""
    monkeypatch.setattr(ray_placer, "find_spec", lambda _: True)
    monkeypatch.setattr(ray_placer, "Connection", Driver)
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    return Ray("auto")


def asked(placer: Ray, nodes: int = 2, devices: int | None = 1, avoided: tuple[str, ...] = ()) -> Any:
    return placer.acquire(Wanted(hosts=placer.hosts(), nodes=nodes, devices=devices), avoided, lambda: None)


def driver(placer: Ray) -> Driver:
    found = placer._connected()
    assert isinstance(found, Driver)
    return found


def test_nodes_without_a_gpu_are_left_out_unless_none_has_one(placer: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    assert placer.hosts() == {"a": (0, 1), "b": (0, 1), "c": (0, 1, 2, 3)}
    assert str(placer) == "8 devices of 3 nodes (Ray)"
    driver(placer).take({"nodes": {"b": [2, 8]}})
    assert placer.hosts().keys() == {"a", "b", "c"}  # they may come back
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert len(placer.hosts()["head"]) == 8


def test_what_is_granted_is_fetched_once_by_whoever_asks_for_the_same(placer: Ray) -> None:
    assert placer.standing == "none"
    assert asked(placer) is None
    assert asked(placer) is None
    [request] = driver(placer).asked
    assert request == {"acquire": request["acquire"], "bundles": [{"GPU": 1}] * 2, "avoided": ()}
    assert placer.standing == "asked"
    driver(placer).take({"queued": request["acquire"]})
    assert placer.standing == "queued"
    driver(placer).grant(request["acquire"], "b", "a", gpus=("3",))
    assert placer.standing == "granted"
    placement = asked(placer)
    assert [(place.node, place.devices, place.address) for place in placement.places] == [
        ("a", (3,), "10.0.0.1"),
        ("b", (3,), "10.0.0.0"),
    ]
    assert placement.places[0].reach.words[-3:] == ("/socket", request["acquire"], "1")
    assert placer.standing == "none"
    placer.release(placement)
    assert driver(placer).asked[-1] == {"release": request["acquire"]}


def test_a_request_for_something_else_takes_the_place_of_the_last(placer: Ray) -> None:
    assert asked(placer) is None
    assert asked(placer, nodes=1, devices=2) is None
    first, given_back, second = driver(placer).asked
    assert given_back == {"release": first["acquire"]}
    assert second["bundles"] == [{"GPU": 2}]


def test_what_nobody_fetches_goes_back(placer: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(placer) is None
    key = driver(placer).asked[0]["acquire"]
    driver(placer).grant(key, "a", "b")
    driver(placer).take({})
    assert placer.standing == "granted"
    monkeypatch.setattr(ray_placer, "_KEPT_SECONDS", -1.0)
    driver(placer).take({})
    assert placer.standing == "none"
    assert driver(placer).asked[-1] == {"release": key}


def test_lost_nodes_are_avoided_only_if_the_others_suffice(placer: Ray) -> None:
    assert asked(placer, avoided=("a", "gone")) is None
    assert asked(placer, nodes=3, avoided=("a",)) is None
    assert [one["avoided"] for one in driver(placer).asked if "acquire" in one] == [("a",), ()]


def test_a_command_that_takes_whole_nodes_takes_the_largest_that_there_are_enough_of(placer: Ray) -> None:
    assert asked(placer, devices=None) is None
    assert driver(placer).asked[0]["bundles"] == [{"GPU": 2}] * 2


def test_devices_with_uuids_and_cpus_have_numbers(placer: Ray) -> None:
    assert asked(placer, nodes=1, devices=2) is None
    driver(placer).grant(driver(placer).asked[0]["acquire"], "a", gpus=("GPU-x", "GPU-y"))
    [place] = asked(placer, nodes=1, devices=2).places
    assert (place.devices, place.uuids) == ((0, 1), {0: "GPU-x", 1: "GPU-y"})


def test_actors_that_never_start_are_an_error(placer: Ray) -> None:
    for _ in range(3):
        assert asked(placer) is None
        driver(placer).take({"failed": driver(placer).asked[-1]["acquire"], "why": "no Python there"})
    with pytest.raises(DsoptError, match="does not start actors there: no Python there"):
        asked(placer)


def test_a_connection_that_has_ended_is_an_error_once(placer: Ray) -> None:
    driver(placer).problem = "its driver has ended"
    with pytest.raises(DsoptError, match="the connection to Ray has ended: its driver has ended"):
        asked(placer)
    assert asked(placer) is None  # by a new connection


def test_where_there_is_no_ray_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_placer, "find_spec", lambda _: None)
    with pytest.raises(DsoptError, match=r"Ray is not installed here. Install it: pip install 'dsopt\[ray\]'"):
        Ray("auto")


@pytest.mark.usefixtures("placer")
def test_what_ray_decides_cannot_be_asked_of_a_worker() -> None:
    assert with_placer(None, "ray", "auto").kind == "gpu"
    with pytest.raises(DsoptError, match="--devices: '0,1': Ray decides which devices runs have"):
        with_placer("0,1", "ray", "auto")
    with pytest.raises(DsoptError, match="--exclusive: Ray decides what shares a node"):
        with_placer(None, "ray", "auto", is_exclusive=True)


@pytest.mark.parametrize("address", ["", "ray://head:10001"])
def test_addresses_of_clients_are_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(ray_placer, "find_spec", lambda _: True)
    with pytest.raises(DsoptError, match=r"is not an address that a worker can use\. Expected HOST:PORT"):
        Ray(address)


def test_addresses_that_are_none_or_where_nobody_answers_are_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        silent = f"127.0.0.1:{taken.getsockname()[1]}"
        for address, why in ((silent, "nobody answers there"), ("head", "that is no address"), ("h:x", "no address")):
            with pytest.raises(DsoptError, match=f"--ray {address}: .*{why}"):
                Connection(address, lambda _: None)


def test_a_program_in_a_bundle_has_pipes_and_says_how_it_ended() -> None:
    bundle = Bundle()
    program = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stdout.flush(); sys.exit('too\\nbad')"
    bundle.start([sys.executable, "-c", program])
    reader = threading.Thread(target=lambda: told.append(bundle.read()))
    told: list[bytes] = []
    reader.start()
    for data in (b"a", b"b", b""):
        bundle.write(data)
    reader.join()
    assert told == [b"AB"]
    assert bundle.read() == b""
    assert bundle.ended() == "bad (exit code 1)"
    bundle.write(b"late")
