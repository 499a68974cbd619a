"""The engines whose nodes dsopt can use: one file each, and one line here. `docs/extending.md` shows how to add one."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool, parse_devices
from dsopt.launch.placers.placer import ChoosingPlacer, Placer
from dsopt.launch.placers.ray import Ray
from dsopt.launch.placers.slurm import Slurm
from dsopt.launch.placers.ssh import HostFile

# each takes what a person has written after its name, or an empty text
_OWN: Final[Mapping[str, Callable[[str], Placer]]] = {
    "hostfile": lambda path: HostFile(Path(path)),
    "ray": Ray,
    "slurm": lambda _: Slurm(),
}
_GROUP: Final = "dsopt.placers"  # entry points of other packages, each a function of that text


def placer_named(name: str, argument: str = "") -> Placer:
    """The placer of this name.

    Raises:
        DsoptError: there is none, its package cannot be imported, or it cannot be used here.
    """
    make = _OWN.get(name)
    if make is None:
        found = {entry.name: entry for entry in entry_points(group=_GROUP)}
        if name not in found:
            raise DsoptError(f"--placer {name}: no such placer. Expected one of {', '.join([*_OWN, *found])}.")
        try:
            make = found[name].load()
        except Exception as error:  # whatever somebody else's module raises
            raise DsoptError(
                f"entry point '{name}' of {_GROUP}: {found[name].value} cannot be imported: {error}. Fix or remove the "
                "package that declares it."
            ) from None
    placer: Placer = make(argument)
    return placer


def with_placer(devices: str | None, name: str, text: str = "", *, is_exclusive: bool = False) -> DevicePool:
    """The devices with the nodes of an engine, such as `hostfile` with a path, `ray` with an address, or `slurm`.

    Args:
        devices: those of this node, as a person writes them; None: all that are free.
        name: the engine's.
        text: what a person has written after it.
        is_exclusive: whether each run shall have its nodes for itself.

    Raises:
        DsoptError: there is no such engine, or it cannot be used here; or it decides what is asked for here; or the
            devices do not exist.
    """
    placer = placer_named(name, text)
    if not isinstance(placer, ChoosingPlacer):
        pool = replace(parse_devices(devices), is_exclusive=is_exclusive)
        placer.hosts()  # a mistake in what it reads is told now
        return replace(pool, placer=placer)
    if devices is not None:
        raise DsoptError(f"--devices: {devices!r}: {placer.name} decides which devices runs have. Leave --devices out.")
    if is_exclusive:
        raise DsoptError(f"--exclusive: {placer.name} decides what shares a node. Leave --exclusive out.")
    return DevicePool(kind="gpu" if placer.has_gpus else "cpu", indices=(), placer=placer)
