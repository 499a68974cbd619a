"""Which devices a study's runs need: how many of a worker's, which ones they may be, and which ones of other nodes."""

import contextlib
import hashlib
import itertools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool, default_ranks, is_this_node
from dsopt.launch.gpus import Gpu
from dsopt.launch.placement import Placement
from dsopt.launch.placers.placer import Placer
from dsopt.launch.placers.ssh import HostFile
from dsopt.launch.program import find_launcher
from dsopt.search.history import History
from dsopt.store.leases import Request
from dsopt.study.candidate_run import candidate_command
from dsopt.study.command import LaunchCommand
from dsopt.study.comparison import specs_of_runs
from dsopt.study.host_file import USUAL_HOST_FILE, hosts_of, wanted_among, wanted_of
from dsopt.study.space import NUM_GPUS, NUM_NODES, Candidate
from dsopt.study.spec import StudySpec
from dsopt.study.wanted import Wanted

_MOST_LANES: Final = 64  # a worker has a thread for each


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a run takes place.

    Attributes:
        pool: the devices of this worker that it may use.
        count: how many of them it needs; 0 if it is simulated, however many it pretends to have.
        hosts: the devices that its launcher takes by a host file, by node, this one among them.
        wanted: what it takes of the nodes that dsopt itself starts it on; then `pool` is of this node, if it is one.
        placer: has these nodes.
    """

    pool: DevicePool
    count: int
    hosts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    wanted: Wanted | None = None
    placer: Placer | None = None

    @property
    def nodes(self) -> Iterable[str]:
        """Those that it is spread over, or may be."""
        return self.hosts if self.wanted is None else self.wanted.hosts


def places_of(spec: StudySpec, pool: DevicePool, candidate: Candidate | None = None) -> Places:
    """Where a run takes place.

    Raises:
        DsoptError: it needs devices of this node that the pool has not, or the host file cannot be used.
    """
    command = candidate_command(spec, candidate)
    if spec.is_simulated:
        return Places(pool=pool, count=0)
    where = f"study '{spec.name}'"
    if pool.placer is not None:
        return _places_of_placer(spec, pool, pool.placer, command)
    if command.uses_hostfile and (command.hostfile is not None or Path(USUAL_HOST_FILE).exists()):
        return _places_by_host_file(spec, pool, command)
    if command.nodes > 1:
        raise DsoptError(
            f"{where}: command: it takes {command.nodes} nodes. Say which: with --hostfile FILE, with lines such as "
            "'worker-1 slots=8', with --ray ADDRESS, or within a Slurm allocation with --slurm."
        )
    pool = pool_of(spec, pool)
    count = command.ranks or default_ranks(pool)
    if count > len(pool.indices):
        raise DsoptError(
            f"{where}: command: {command.launcher.ranks[0]} {count}: this worker has {pool}. "
            "Give it more with --devices (on a machine without GPUs: --devices cpu:N), or ask for fewer."
        )
    return Places(pool=pool, count=count)


def _places_of_placer(spec: StudySpec, pool: DevicePool, placer: Placer, command: LaunchCommand) -> Places:
    """Where a run takes place that may go to any of a placer's nodes."""
    where = f"study '{spec.name}'"
    if not command.launcher.can_be_spread(command.options, find_launcher(command.program[0], Path(spec.cwd))):
        raise DsoptError(
            f"{where}: command: dsopt cannot start it on other nodes itself, because of its launcher or an option such "
            f"as {', '.join(command.options.names) or 'none'}. Leave out what is not needed, or work without "
            "--hostfile, --ray and --slurm."
        )
    kind = "gpu" if placer.has_gpus else "cpu" if placer.has_gpus is not None else pool.kind
    wanted = wanted_among(command, placer.hosts(), str(placer), where)
    return _spread(replace(pool, kind=kind), wanted, placer, where)


def _spread(pool: DevicePool, wanted: Wanted, placer: Placer, where: str) -> Places:
    """Where a run takes place that dsopt starts itself; of this node it takes what the worker may use."""
    own = [] if placer.is_granting else [name for name in wanted.hosts if is_this_node(name)]
    if len(own) > 1:
        names = " and ".join(map(repr, own))
        raise DsoptError(f"{where}: command: the host file has this node twice, as {names}. Name it once.")
    left = {name: [i for i in wanted.hosts[name] if i in pool.indices] for name in own}
    lacking = next((set(wanted.hosts[name]) - set(mine) for name, mine in left.items()), set[int]())
    if lacking and (wanted.devices is None or not replace(wanted, hosts={**wanted.hosts, **left}).can_ever_be):
        raise DsoptError(
            f"{where}: command: the host file gives runs device {min(lacking)} of this node; this worker has {pool}. "
            "Give it more with --devices (on a machine without GPUs: --devices cpu:N), or change the host file."
        )
    wanted = replace(wanted, hosts={**wanted.hosts, **left})
    return Places(pool=pool, count=wanted.devices or 1, wanted=wanted, placer=placer)


def _places_by_host_file(spec: StudySpec, pool: DevicePool, command: LaunchCommand) -> Places:
    """Where a run takes place whose command names a host file: where its launcher would, if only that can start it."""
    where = f"study '{spec.name}'"
    program = find_launcher(command.program[0], Path(spec.cwd))
    hosts = hosts_of(command, Path(spec.cwd), where)
    # of a single node, the launcher looks at the devices alone, and starts them where it is
    is_local = len(hosts) == 1 and not command.has_launcher_flag("--force_multi")
    if not is_local and spec.start != "launcher" and command.launcher.can_be_spread(command.options, program):
        path = Path(spec.cwd) / (command.hostfile or USUAL_HOST_FILE)
        placer = HostFile(path, command.option("--ssh_port"))
        return _spread(replace(pool, placer=None), wanted_of(command, Path(spec.cwd), where), placer, where)
    own = {name: indices for name, indices in hosts.items() if is_local or is_this_node(name)}
    if len(own) > 1:
        names = " and ".join(map(repr, own))
        raise DsoptError(f"{where}: command: the host file has this node twice, as {names}. Name it once.")
    here = {index for indices in own.values() for index in indices}
    if missing := sorted(here - set(pool.indices)):
        raise DsoptError(
            f"{where}: command: the host file gives runs device {missing[0]} of this node; this worker has {pool}. "
            "Give it more with --devices (on a machine without GPUs: --devices cpu:N), or change the host file."
        )
    named = {} if is_local else {name: indices for name, indices in hosts.items() if name != "localhost"}
    return Places(pool=replace(pool, indices=tuple(sorted(here))), count=len(here), hosts=named)


def without_nodes(places: Places, nodes: Collection[str]) -> Places:
    """The same without some of the nodes that dsopt itself may start a run on."""
    wanted = places.wanted
    if wanted is None or not nodes:
        return places
    hosts = {name: indices for name, indices in wanted.hosts.items() if name not in nodes}
    return replace(places, wanted=replace(wanted, hosts=hosts))


def without_slow(places: Places, slow: Mapping[str, Collection[int]], own: str) -> Places:
    """The same without devices that are slower than the others of their node, if a run can do without them.

    Args:
        places: where the run takes place.
        slow: these devices, by node.
        own: the worker's node.
    """
    wanted = places.wanted
    if wanted is not None and wanted.devices is not None:
        hosts = {name: _left(indices, slow.get(name, ())) for name, indices in wanted.hosts.items()}
        spared = replace(places, wanted=replace(wanted, hosts=hosts))
        return spared if replace(wanted, hosts=hosts).can_ever_be else places
    left = _left(places.pool.indices, slow.get(own, ()))
    can_spare = wanted is None and not places.hosts and places.count <= len(left)
    return replace(places, pool=replace(places.pool, indices=left)) if can_spare else places


def _left(indices: Sequence[int], slow: Collection[int]) -> tuple[int, ...]:
    return tuple(index for index in indices if index not in slow) if slow else tuple(indices)


def files_of(spec: StudySpec, history: History) -> str:
    """The name of the folder that a run of a study has for itself: of that it works in, if runs of it save there."""
    if spec.is_simulated or not history.saves_in_place:
        return ""
    working = os.path.realpath(spec.cwd)
    with contextlib.suppress(OSError):  # of containers, each may have another of this name
        working += f" {os.stat(working).st_ino}"  # noqa: PTH116
    return hashlib.blake2b(os.fsencode(working), digest_size=16).hexdigest()


def request_of(places: Places, last: Sequence[str] = (), granted: Placement | None = None, files: str = "") -> Request:
    """What an attempt that takes place there leases; nodes of `last` only if it must, or what was granted."""
    wanted, placer = places.wanted, places.placer
    own = next(filter(is_this_node, wanted.hosts), None) if wanted is not None else None
    return Request(
        pool=places.pool,
        count=places.count,
        hosts=places.hosts,
        wanted=wanted,
        own=None if placer is not None and placer.is_granting else own,
        last=last,
        scope=placer.scope if placer is not None else "",
        is_exclusive=places.pool.is_exclusive,
        granted=granted,
        files=files,
    )


def pool_of(spec: StudySpec, pool: DevicePool) -> DevicePool:
    """The devices of a worker that a study's command lets it use, if they are GPUs.

    Raises:
        DsoptError: it lets it use none of them.
    """
    command = spec.resources
    included, excluded = command.chosen_gpus
    if pool.kind != "gpu" or command.uses_hostfile or spec.is_simulated:
        return pool
    kept = [index for index in pool.indices if index not in excluded and (included is None or index in included)]
    if (visible := spec.launch.visible_gpus) is not None:
        gpus = {index: Gpu(index=index, uuid=pool.uuids.get(index, "")) for index in kept}
        kept = [index for index in kept if any(gpus[index].is_named(name) for name in visible)]
    if not kept:
        raise DsoptError(
            f"study '{spec.name}': command: it uses none of this worker's {pool}. Give the worker the GPUs that the "
            "command names, or change its --include, --exclude, --gpu_ids or CUDA_VISIBLE_DEVICES."
        )
    return replace(pool, indices=tuple(kept))


def check_capacity(spec: StudySpec, pool: DevicePool) -> None:
    """Refuses a worker whose devices do not suffice for some run of a study.

    Raises:
        DsoptError: says what is missing.
    """
    places_of_runs(spec, pool)


def lanes_of(spec: StudySpec, pool: DevicePool) -> int:
    """How many runs of a study the devices allow side by side. Those of a launcher by a host file take the same."""
    places = places_of_runs(spec, pool)
    if any(one.hosts for one in places):
        return 1
    if any(one.wanted is not None for one in places):
        return min(_MOST_LANES, max(one.wanted.side_by_side for one in places if one.wanted is not None))
    least = max(1, smallest_of(spec, pool).count)  # dry runs need no devices, so they run as many at once
    return max(1, len(pool_of(spec, pool).indices) // least)


def smallest_of(spec: StudySpec, pool: DevicePool) -> Places:
    """Where the run of a study takes place that needs the fewest devices of a node."""
    return min(places_of_runs(spec, pool), key=lambda one: one.count)


def places_of_runs(spec: StudySpec, pool: DevicePool) -> list[Places]:
    """Where the runs of a study take place: its own, and one for each choice of nodes and GPUs.

    Raises:
        DsoptError: as `places_of`.
    """
    dimensions = {NUM_NODES: spec.autotuning.num_nodes, NUM_GPUS: spec.autotuning.num_gpus}
    listed = [[(key, value) for value in values] for key, values in dimensions.items() if isinstance(values, list)]
    tuned = [Candidate(stage=0, micro_batch=1, gas=1, knobs=knobs) for knobs in itertools.product(*listed) if knobs]
    return [places_of(run, pool, candidate) for run in specs_of_runs(spec) for candidate in [None, *tuned]]
