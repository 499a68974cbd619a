"""The options that say on which nodes, beside a worker's own, its runs may take place."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from dsopt.api.workers import Devices

_F = TypeVar("_F", bound=Callable[..., Any])
_KEPT: Final = "dsopt.cli.nodes"  # in the context: what was given, as names and texts of placers


def nodes_options(command: _F) -> _F:
    """`--hostfile`, `--slurm`, `--placer`: `pool_with_nodes` takes what they say."""
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
            "--hostfile",
            metavar="FILE",
            expose_value=False,
            callback=_keep(lambda value: ("hostfile", value)),
            help="Start runs on the nodes of this host file, by ssh.",
        ),
    ):
        command = option(command)
    return command


def are_nodes_given() -> bool:
    """Whether one of these options was given to the current command."""
    return bool(click.get_current_context().meta.get(_KEPT))


def pool_with_nodes(devices: str | None) -> "Devices":
    """The devices of this node that `--devices` names, with the nodes that these options name.

    Raises:
        DsoptError: they do not exist, or cannot be used.
    """
    from dsopt.api.workers import pool_of, with_placer

    given = click.get_current_context().meta.get(_KEPT, [])
    if len(given) > 1:
        raise click.UsageError("--hostfile, --slurm and --placer exclude each other. Keep one of them.")
    pool = pool_of(devices)
    return with_placer(pool, *given[0]) if given else pool


def _keep(placer: Callable[[Any], tuple[str, str]]) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:  # noqa: ANN401 - a text or a switch
        if value:
            context.meta.setdefault(_KEPT, []).append(placer(value))

    return keep
