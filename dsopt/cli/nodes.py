"""The options that say on which nodes, beside a worker's own, its runs may take place."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from dsopt.api.workers import Devices

_F = TypeVar("_F", bound=Callable[..., Any])
_KEPT: Final = "dsopt.cli.nodes"  # in the context: what was given, as names and texts of placers
_TRUSTED: Final = "dsopt.cli.nodes.trusted"  # likewise: whether nobody measures how fast devices are


def nodes_options(command: _F) -> _F:
    """`--hostfile`, `--ray`, `--slurm`, `--placer`: `pool_with_nodes` takes what they say."""
    for option in (
        click.option(
            "--placer",
            metavar="NAME[:TEXT]",
            expose_value=False,
            callback=_keep(lambda value: value.partition(":")[::2]),
            help="Start runs on the nodes of another engine, which a package of its own adds.",
        ),
        click.option(
            "--slurm",
            is_flag=True,
            expose_value=False,
            callback=_keep(lambda _: ("slurm", "")),
            help="Start runs on all nodes of the Slurm allocation that this command is in.",
        ),
        click.option(
            "--ray",
            metavar="ADDRESS",
            expose_value=False,
            callback=_keep(lambda value: ("ray", value)),
            help="Start runs where this Ray cluster gives them GPUs: HOST:PORT of its head, or auto.",
        ),
        click.option(
            "--hostfile",
            metavar="FILE",
            expose_value=False,
            callback=_keep(lambda value: ("hostfile", value)),
            help="Start runs on the nodes of this host file, by ssh.",
        ),
    ):
        command = option(command)
    return command


def speed_check_option(command: _F) -> _F:
    """`--no-speed-check`, which `pool_with_nodes` obeys."""
    return click.option(
        "--no-speed-check",
        is_flag=True,
        expose_value=False,
        callback=lambda context, _, value: context.meta.update({_TRUSTED: value}),
        help="Do not measure first, for 10 s at most, how fast the devices are.",
    )(command)


def given_engine() -> tuple[str, str] | None:
    """The placer that one of these options names for the current command, and its text."""
    given: list[tuple[str, str]] = click.get_current_context().meta.get(_KEPT, [])
    if len(given) > 1:
        raise click.UsageError("--hostfile, --ray, --slurm and --placer exclude each other. Keep one of them.")
    return given[0] if given else None


def pool_with_nodes(devices: str | None, *, is_exclusive: bool = False) -> "Devices":
    """The devices of this node that `--devices` names, with the nodes that these options name.

    Args:
        devices: as typed.
        is_exclusive: whether each run shall have its nodes for itself.

    Raises:
        DsoptError: they do not exist, or cannot be used.
    """
    from dsopt.api.workers import measures_nodes, pool_of, with_placer

    engine, is_trusted = given_engine(), click.get_current_context().meta.get(_TRUSTED, False)
    if engine is None:
        pool = replace(pool_of(devices), is_exclusive=is_exclusive)
    else:
        pool = with_placer(devices, *engine, is_exclusive=is_exclusive)
    return replace(pool, is_measured=measures_nodes() and not is_trusted)


def _keep(placer: Callable[[Any], tuple[str, str]]) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:  # noqa: ANN401 - a text or a switch
        if value:
            context.meta.setdefault(_KEPT, []).append(placer(value))

    return keep
