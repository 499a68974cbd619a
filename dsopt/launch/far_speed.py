"""Measures how fast the devices of several nodes are: on each as `launch/node_speed` does here, on all at once."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dsopt.launch.devices import free_ports
from dsopt.launch.far_part import FarPart
from dsopt.launch.node_speed import MODULE, MOST_SECONDS, backend_of, ranks_of, variables_of
from dsopt.launch.placement import Place, Placement
from dsopt.launch.training import Training, results_in
from dsopt.protocol.private import make_private
from dsopt.protocol.run_dir import RunDir
from dsopt.study.node_rates import NodeRates, rates_of
from dsopt.study.own_programs import own_program

_CONNECT_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1
_NOBODY: Final = "0"  # to end with: the part of a node ends its ranks with the connection
_LATE: Final = "they were not done in time"


def measure_far(
    placement: Placement, training: Training, kind: str, run_dir: Path, *, should_end: Callable[[], bool]
) -> dict[str, NodeRates | str]:
    """What the devices of each node do, or why they have not shown it.

    Args:
        placement: the nodes, with devices that nobody else uses meanwhile.
        training: what runs of the study start with; its Python is in the same folder on every node.
        kind: of the devices, `gpu` or `cpu`.
        run_dir: a folder for what the nodes tell.
        should_end: asked meanwhile whether it is to end at once.
    """
    nodes = [_Node(place, training, kind, run_dir) for place in placement.places]
    try:
        for node in nodes:
            node.start()
        deadline = time.monotonic() + MOST_SECONDS
        while not all(node.is_done for node in nodes) and time.monotonic() < deadline and not should_end():
            time.sleep(_LOOK_SECONDS)
    finally:
        for node in nodes:
            node.part.end(0.0)
        for node in nodes:
            node.part.wait_until_gone(_CONNECT_SECONDS)
    return {node.part.place.node: node.found() for node in nodes}


class _Node:
    def __init__(self, place: Place, training: Training, kind: str, run_dir: Path) -> None:
        self._ranks = ranks_of(kind, len(place.devices))
        self._run_dir = RunDir(run_dir / place.node)
        make_private(self._run_dir.path)
        self._kind, self._python = kind, str(training.python)
        self.part = FarPart(place, self._run_dir, training.environment)

    def start(self) -> None:
        """Starts a rank for each device; what hinders it is the part's `problem`."""
        where = self.part.ask(_CONNECT_SECONDS, look=next(free_ports()), address=None)
        if where is None:
            return
        argv = own_program(MODULE, backend_of(self._kind), str(MOST_SECONDS), _NOBODY, python=self._python)
        place = self.part.place
        devices = ",".join(map(str, place.devices)) if self._kind == "gpu" and not place.is_granted else None
        ranks = variables_of(self._ranks, int(where["port"]), devices)
        order = {
            "run_dir": str(self._run_dir.path),
            "cwd": "/",
            "port": where["port"],
            "kind": self._kind,
            "devices": [] if place.is_granted else [*place.devices],
            "folders": [],
            "files": {},
            "processes": [{"argv": argv, "environment": dict(rank)} for rank in ranks],
        }
        self.part.started(order, _CONNECT_SECONDS)

    @property
    def is_done(self) -> bool:
        return self.part.problem is not None or len(self.part.exits) == self._ranks or any(self.part.exits.values())

    def found(self) -> NodeRates | str:
        told = {one["rank"]: one for one in results_in(_text(self._run_dir.stdout))}  # the last of each counts
        rates = rates_of([told.get(rank) for rank in range(self._ranks)])
        said = _text(self._run_dir.stderr).splitlines() if any(self.part.exits.values()) else []
        words = next((line.strip() for line in reversed(said) if line.strip()), None)
        return rates or words or self.part.problem or _LATE


def _text(log: Path) -> str:
    return log.read_text("utf-8", "replace") if log.exists() else ""
