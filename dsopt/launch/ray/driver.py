"""The program that is Ray's driver for a worker: it asks for placement groups, and keeps an actor in each bundle.

`python -m dsopt.launch.ray.driver ADDRESS SOCKET` is a process of its own, so that nothing that Ray does to its driver
(threads, signals, an abort when the head is gone) is done to the worker. When the worker ends, however it ends, this
process does; then Ray removes what it had. They speak lines of JSON:

                                                     {"connected": {"nodes": {name: [GPUs, CPUs]}}}
                                                     or {"refused": why}
                                                     {"nodes": {…}}, when that has changed
    {"acquire": grant, "bundles": [{"GPU": 2}, …],   {"queued": grant}, if there is no room now
     "avoided": [node, …], "list_gpus": argv}        {"granted": grant, "bundles": [{node, address, gpus, uuids}, …]}
    {"release": grant}                               {"failed": grant, "why": …}
"""

import contextlib
import json
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, TextIO

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from dsopt.launch.ray import bundle as bundle_module
from dsopt.launch.ray.bridge import FRAME

_QUEUED_SECONDS: Final = 3.0  # a group for which there is room is placed within milliseconds
_LOOK_SECONDS: Final = 2.0
_ACTOR_SECONDS: Final = 120.0  # a Python that starts on a node that has much to do
_GOODBYE_SECONDS: Final = 3.0
_MOST_BYTES: Final = 1 << 16
_REFUSED: Final = 1
_METHODS: Final = {"read": 1, "write": 1}  # of the actor, each with a thread of its own
_NODE_ID: Final = "ray.io/node-id"


@dataclass(slots=True)
class _Grant:
    """A placement group that is asked for; `actors` once it is granted."""

    group: Any = None
    actors: Sequence[Any] = ()
    is_released: threading.Event = field(default_factory=threading.Event)

    def remove(self) -> None:
        """Gives it back to Ray, which ends its actors."""
        self.is_released.set()
        if self.group is not None:
            with contextlib.suppress(Exception):  # Ray may have removed it
                remove_placement_group(self.group)


class _Driver:
    """What this process does for its worker.

    Args:
        told: where it tells.
    """

    def __init__(self, told: TextIO) -> None:
        self._told = told
        self._telling = threading.Lock()
        self._grants: dict[str, _Grant] = {}

    def tell(self, **what: object) -> None:
        """Tells the worker."""
        with self._telling, contextlib.suppress(OSError):  # it is gone, which the reader finds
            self._told.write(json.dumps(what) + "\n")
            self._told.flush()

    def take(self, request: Mapping[str, Any]) -> None:
        """Does what the worker asks for. Does not wait."""
        if "acquire" in request:
            grant = self._grants[request["acquire"]] = _Grant()
            threading.Thread(target=self._acquire, args=(request["acquire"], grant, request), daemon=True).start()
        elif (given_back := self._grants.pop(request["release"], None)) is not None:
            given_back.remove()

    def watch_nodes(self, known: Mapping[str, "_Node"]) -> None:
        """Tells of nodes that come and go."""
        while True:
            time.sleep(_LOOK_SECONDS)
            now = _nodes()
            if now != known:
                self.tell(nodes=_counts(now))
            known = now

    def serve(self, connection: socket.socket) -> None:
        """Starts a program in a bundle for a bridge, and passes its input and output."""
        with connection, connection.makefile("rb") as given:
            try:
                order = json.loads(given.readline())
                actor = self._grants[order["grant"]].actors[order["bundle"]]
                ray.get(actor.start.remote(order["argv"]))
                threading.Thread(target=_pass_input, args=(given, actor), daemon=True).start()
                while data := ray.get(actor.read.options(concurrency_group="read").remote()):
                    connection.sendall(FRAME.pack(b"o", len(data)) + data)
                why = ray.get(actor.ended.remote())
            except OSError:
                return  # the bridge is gone
            except Exception as error:  # whatever Ray raises, above all that the actor is lost
                why = _in_one_line(error)
            with contextlib.suppress(OSError):
                connection.sendall(FRAME.pack(b"e", len(why.encode())) + why.encode())
                connection.shutdown(socket.SHUT_RDWR)  # the thread that reads here ends, too

    def _acquire(self, key: str, grant: _Grant, request: Mapping[str, Any]) -> None:
        """Asks for a placement group, waits for it, and starts its actors."""
        try:
            grant.group = _group(request["bundles"], request["avoided"])
            if self._is_placed(key, grant):
                grant.actors = [_actor(grant.group, i, one) for i, one in enumerate(request["bundles"])]
                told = ray.get([one.about.remote(request["list_gpus"]) for one in grant.actors], timeout=_ACTOR_SECONDS)
                names = {node.id: (name, node.address) for name, node in _nodes().items()}
                named = [dict(zip(("node", "address"), names[one["node_id"]], strict=True)) for one in told]
                self.tell(granted=key, bundles=[one | name for one, name in zip(told, named, strict=True)])
        except Exception as error:  # whatever Ray raises
            if not grant.is_released.is_set():
                self.tell(failed=key, why=_in_one_line(error))
                grant.remove()
        if grant.is_released.is_set():
            grant.remove()  # it was given back before there was a group

    def _is_placed(self, key: str, grant: _Grant) -> bool:
        """Waits until Ray has placed a group. False: it was given back meanwhile."""
        is_told = False
        while not grant.is_released.is_set():
            if grant.group.wait(timeout_seconds=_QUEUED_SECONDS):
                return True
            if not is_told and not grant.is_released.is_set():
                self.tell(queued=key)
                is_told = True
        return False


@dataclass(frozen=True, slots=True)
class _Node:
    id: str
    address: str
    gpus: int
    cpus: int


def _nodes() -> dict[str, _Node]:
    """The nodes that live now, by their host names, with their addresses where two have the same."""
    alive = [one for one in ray.nodes() if one["Alive"]]
    names = [one["NodeManagerHostname"] for one in alive]
    found = {}
    for name, one in zip(names, alive, strict=True):
        address, has = one["NodeManagerAddress"], one["Resources"]
        unique = name if names.count(name) == 1 else f"{name}-{address}"
        found[unique] = _Node(one["NodeID"], address, int(has.get("GPU", 0)), int(has.get("CPU", 0)))
    return found


def _counts(nodes: Mapping[str, _Node]) -> dict[str, tuple[int, int]]:
    return {name: (node.gpus, node.cpus) for name, node in nodes.items()}


def _group(bundles: Sequence[Mapping[str, float]], avoided: Sequence[str]) -> Any:  # noqa: ANN401
    """A placement group with each bundle on another node, but none on those to avoid."""
    ids = [node.id for name, node in _nodes().items() if name in avoided]
    more = {"bundle_label_selector": [{_NODE_ID: f"!in({','.join(ids)})"}] * len(bundles)} if ids else {}
    strategy = "STRICT_SPREAD" if len(bundles) > 1 else "STRICT_PACK"
    return placement_group([dict(one) for one in bundles], strategy=strategy, **more)


def _actor(group: Any, number: int, bundle: Mapping[str, float]) -> Any:  # noqa: ANN401
    """An actor that holds one of its bundles, all of it."""
    at = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
    kind = ray.remote(concurrency_groups=_METHODS)(bundle_module.Bundle)
    return kind.options(num_cpus=bundle.get("CPU", 0), num_gpus=bundle.get("GPU", 0), scheduling_strategy=at).remote()


def _pass_input(given: BufferedReader, actor: Any) -> None:  # noqa: ANN401
    write = actor.write.options(concurrency_group="write")
    with contextlib.suppress(Exception):  # the other direction says what is wrong
        while data := given.read1(_MOST_BYTES):
            write.remote(data)
        write.remote(b"")


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def main() -> None:
    """Serves until its worker is gone."""
    address, path = sys.argv[1:]
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Ray prints is not for the worker
    ray.cloudpickle.register_pickle_by_value(bundle_module)
    driver = _Driver(told)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        except Exception as error:  # whatever Ray raises
            driver.tell(refused=_in_one_line(error))
            sys.exit(_REFUSED)
        known = _nodes()
        driver.tell(connected={"nodes": _counts(known)})
        threading.Thread(target=driver.watch_nodes, args=(known,), daemon=True).start()
        threading.Thread(target=_accept, args=(listener, driver), daemon=True).start()
        for line in sys.stdin:
            driver.take(json.loads(line))
        threading.Timer(_GOODBYE_SECONDS, os._exit, (0,)).start()
        shutil.rmtree(Path(path).parent, ignore_errors=True)
        ray.shutdown()
        os._exit(0)  # threads may still wait for Ray


def _accept(listener: socket.socket, driver: _Driver) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=driver.serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
