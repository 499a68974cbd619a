"""A run over several nodes: dsopt starts each node's part through what the placer gives, and ends all of them together.

Interface and life of `launch/process.py`'s Process; nothing here waits for a node but the thread that starts them.
"""

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dsopt.launch.environment import passed_on
from dsopt.launch.far_part import FarPart
from dsopt.launch.launch import Launch
from dsopt.launch.placement import Place
from dsopt.launch.processes import NODES_PATIENCE_SECONDS, kill_all
from dsopt.launch.program import find_launcher
from dsopt.launch.swap import remove_swap
from dsopt.protocol.events import NODE_LOST, NODE_TAKEN, Error, EventWriter, now
from dsopt.protocol.private import append_private, write_private
from dsopt.study.command_secrets import shown, with_values
from dsopt.study.launchers.launcher import NodeStart, RankStart

_CONNECT_SECONDS: Final = 120.0  # a node that wakes up, or an engine that has much to do
_ALIVE_SECONDS: Final = 5.0
_HERE: Final = "127.0.0.1"
_LOST: Final = 1
_FILES: Final = ("ds_config.json",)  # of the run directory, that ranks read


class Spread:
    """A launched attempt on the nodes of its placement.

    Args:
        launch: what to start, with a placement.
    """

    def __init__(self, launch: Launch) -> None:
        assert launch.placement is not None
        self._launch = launch
        self._problem: str | None = None
        self._is_ending = threading.Event()
        self._counts: list[int] = []  # processes of each node, once they are started
        connects = passed_on(os.environ, launch.command, launch.pass_env)
        write_private(launch.run_dir.command, _described(launch))
        self._parts = [FarPart(place, launch.run_dir, connects) for place in launch.placement.places]
        threading.Thread(target=self._start_or_say_why, name="dsopt-spread", daemon=True).start()
        threading.Thread(target=self._stay_heard, name="dsopt-alive", daemon=True).start()

    def exit_code(self) -> int | None:
        """The exit code of a process that failed; None while they run; an error where a node is lost."""
        codes = [code for part in self._parts for code in list(part.exits.values())]
        failed = next((code for code in codes if code), None)
        if failed is not None:
            return failed
        lost = next((part for part in self._parts if part.problem is not None), None)
        if lost is not None and not self._is_ending.is_set():
            self._tell_lost(lost)
            return _LOST
        return 0 if self._counts and len(codes) == sum(self._counts) else None

    def observe(self) -> None:
        """Nothing is learnt here: dsopt itself has said how ranks start."""

    def kill(self) -> None:
        """Ends every process of the run at once, on every node, and removes what they left behind."""
        self._end(0.0)

    def terminate(self, *, patience_seconds: float = 1.0) -> None:
        """Asks the processes to end, then ends what is left."""
        self._end(patience_seconds)

    def _end(self, patience_seconds: float) -> None:
        if self._is_ending.is_set():
            return
        self._is_ending.set()
        for part in self._parts:
            part.end(patience_seconds)
        for part in self._parts:
            part.wait_until_gone(NODES_PATIENCE_SECONDS + patience_seconds)
        if any(part.is_lost for part in self._parts):
            with contextlib.suppress(OSError):  # a full disk
                append_private(self._launch.run_dir.lost).close()
        kill_all(self._launch.run_dir.path)
        remove_swap(self._launch.run_dir.path)

    def _start_or_say_why(self) -> None:
        try:
            self._start()
        except Exception as error:  # of a thread that nobody waits for: the run must end
            self._parts[0].problem = f"dsopt cannot start it: {error}"

    def _start(self) -> None:
        """Asks the first node where ranks meet, then starts every node's processes."""
        first, launch = self._parts[0], self._launch
        given = launch.command.option(launch.command.launcher.address or "") or first.place.address
        where = first.ask(_CONNECT_SECONDS, look=launch.port, address=given)
        if where is None:
            return
        address, port = _HERE if len(self._parts) == 1 else str(where["address"]), int(where["port"])
        processes = [_processes(launch, number, address, port) for number in range(len(self._parts))]
        for part, ones in zip(self._parts, processes, strict=True):
            if self._is_ending.is_set() or not part.started(self._order(part.place, ones, port), _CONNECT_SECONDS):
                return
        self._counts = [len(ones) for ones in processes]

    def _order(self, place: Place, processes: Sequence[RankStart], port: int) -> Mapping[str, Any]:
        run_dir = self._launch.run_dir
        files = {name: path.read_text("utf-8") for name in _FILES if (path := run_dir.path / name).exists()}
        own = run_dir.path / "own"
        folders = [str(path.relative_to(run_dir.path)) for path in own.rglob("*") if path.is_dir()]
        return {
            "run_dir": str(run_dir.path),
            "cwd": str(self._launch.cwd),
            "port": port,
            "kind": self._launch.devices.kind,
            "devices": [] if place.is_granted else [*place.devices],
            "folders": folders,
            "files": files,
            "processes": [{"argv": one.argv, "environment": dict(one.environment)} for one in processes],
        }

    def _stay_heard(self) -> None:
        while not self._is_ending.wait(_ALIVE_SECONDS):
            for part in self._parts:
                part.say(alive=True)

    def _tell_lost(self, part: FarPart) -> None:
        """Writes down once what is known of a lost node, as an event of its first rank."""
        if self._problem is not None:
            return
        self._problem = f"node '{part.place.node}': {part.problem}"
        placement = self._launch.placement
        assert placement is not None
        first = sum(placement.counts[: self._parts.index(part)])
        with contextlib.closing(EventWriter(self._launch.run_dir, first)) as writer:
            kind = NODE_TAKEN if part.is_taken else NODE_LOST
            writer.emit(Error(rank=first, type=kind, message=self._problem, time=now()))


def _processes(launch: Launch, number: int, address: str, port: int) -> list[RankStart]:
    """What to start on one of the nodes."""
    placement = launch.placement
    assert placement is not None
    place, counts = placement.places[number], placement.counts
    command = with_values(launch.probed_command(), os.environ).with_port(port)
    program = find_launcher(command.program[0], launch.cwd)
    environment = launch.node_variables(os.environ)
    if launch.devices.kind == "gpu" and not place.is_granted:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, place.devices))
    if command.launcher.node_rank is not None:
        own = command.with_nodes(len(counts)).with_ranks(len(place.devices)).with_node(number, address)
        return [RankStart(argv=(str(program), *own.argv()[1:]), environment=environment)]
    start = NodeStart(
        program=program,
        options=command.options,
        script_args=command.script_args,
        environment=environment,
        devices=place.devices,
        port=port,
        address=address,
        node=number,
        counts=counts,
    )
    ranks = command.launcher.node_ranks(start)
    return [_without_choice(rank) for rank in ranks] if place.is_granted else ranks


def _without_choice(rank: RankStart) -> RankStart:
    """A rank that sees what whoever granted the devices lets it see, whatever their numbers are there."""
    return replace(rank, environment={k: v for k, v in rank.environment.items() if k != "CUDA_VISIBLE_DEVICES"})


def _described(launch: Launch) -> str:
    """The command as it runs, for people, with the nodes."""
    assert launch.placement is not None
    nodes = ", ".join(f"{place.node}: {','.join(map(str, place.devices))}" for place in launch.placement.places)
    return f"# on {nodes}\ncd {launch.cwd} && {shown(launch.probed_command())}\n"
