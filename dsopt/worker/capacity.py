"""Which devices a study's runs need: how many of a worker's, which ones they may be, and which ones of other nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool, default_ranks, is_this_node
from dsopt.launch.gpus import Gpu
from dsopt.study.candidate_run import candidate_command
from dsopt.study.command import LaunchCommand
from dsopt.study.comparison import specs_of_runs
from dsopt.study.host_file import hosts_of
from dsopt.study.space import NUM_GPUS, Candidate
from dsopt.study.spec import StudySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a run takes place.

    Attributes:
        pool: the devices of this worker that it may use.
        count: how many of them it needs; 0 if it is simulated, however many it pretends to have.
        hosts: the devices that it takes by a host file, by node, this one among them.
    """

    pool: DevicePool
    count: int
    hosts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def places_of(spec: StudySpec, pool: DevicePool, candidate: Candidate | None = None) -> Places:
    """Where a run takes place.

    Raises:
        DsoptError: it needs devices of this node that the pool has not, or the host file cannot be used.
    """
    command = candidate_command(spec, candidate)
    if spec.is_simulated:
        return Places(pool=pool, count=0)
    if command.uses_hostfile:
        return _places_by_host_file(spec, pool, command)
    pool = pool_of(spec, pool)
    count = command.ranks or default_ranks(pool)
    if count > len(pool.indices):
        raise DsoptError(
            f"study '{spec.name}': command: {command.launcher.ranks[0]} {count}: this worker has {pool}. "
            "Give it more with --devices (on a machine without GPUs: --devices cpu:N), or ask for fewer."
        )
    return Places(pool=pool, count=count)


def _places_by_host_file(spec: StudySpec, pool: DevicePool, command: LaunchCommand) -> Places:
    """Where a run takes place whose launcher chooses the devices by a host file: always the same ones."""
    where = f"study '{spec.name}'"
    hosts = hosts_of(command, Path(spec.cwd), where)
    # of a single node, the launcher looks at the devices alone, and starts them where it is
    is_local = len(hosts) == 1 and not command.has_launcher_flag("--force_multi")
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
    _places_of_runs(spec, pool)


def lanes_of(spec: StudySpec, pool: DevicePool) -> int:
    """How many runs of a study the devices allow side by side. Those by a host file all take its first devices."""
    if any(one.hosts for one in _places_of_runs(spec, pool)):
        return 1
    least = max(1, least_of(spec, pool))  # dry runs need no devices, so they run as many at once
    return max(1, len(pool_of(spec, pool).indices) // least)


def least_of(spec: StudySpec, pool: DevicePool) -> int:
    """How many devices of a worker the smallest run of a study needs."""
    return min(one.count for one in _places_of_runs(spec, pool))


def _places_of_runs(spec: StudySpec, pool: DevicePool) -> list[Places]:
    given = spec.autotuning.num_gpus
    tuned = [
        Candidate(stage=0, micro_batch=1, gas=1, knobs=((NUM_GPUS, number),))
        for number in (given if isinstance(given, list) else [])
    ]
    return [places_of(run, pool, candidate) for run in specs_of_runs(spec) for candidate in [None, *tuned]]
