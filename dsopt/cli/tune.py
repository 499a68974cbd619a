"""`dsopt tune|run -- deepspeed …`: creates a study from a command and works on it; `run` trains with the result."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dsopt.api.one_thread import calculate_on_one_thread
from dsopt.cli.created import page_line, show_created
from dsopt.cli.mapping import map_option, offered, with_mappings
from dsopt.cli.nodes import nodes_options, pool_with_nodes, speed_check_option
from dsopt.cli.notifications import Notifier, notify_option, notifying
from dsopt.cli.options import (
    devices_option,
    json_at_the_end_option,
    only_data_on_stdout,
    scaling_option,
    storage_option,
    take_over_option,
)
from dsopt.cli.patiently import patiently
from dsopt.cli.prose import say
from dsopt.cli.signals import hear_drains
from dsopt.cli.worker import print_results, work_on
from dsopt.errors import DsoptError

if TYPE_CHECKING:
    from dsopt import Study

_F = TypeVar("_F", bound=Callable[..., Any])


def _options(command: _F) -> _F:
    """The arguments that `tune` and `run` share."""
    for option in (
        storage_option,
        notify_option,
        devices_option,
        nodes_options,
        speed_check_option,
        scaling_option,
        take_over_option,
        click.option("--memory-per-device", metavar="SIZE", help="Cap on a rank's device memory, such as 24GiB."),
        click.option(
            "--start",
            type=click.Choice(["warm", "direct", "launcher"]),
            help="How to start ranks: fork them from a process that has imported what the script imports (warm, the "
            "default), start each directly, or start the launcher.",
        ),
        click.option(
            "--isolate",
            multiple=True,
            metavar="FLAG",
            help="A flag of the script that names what it writes, such as --isolate=--save-dir: each run gets its own. "
            "dsopt knows those of the Hugging Face Trainer and Accelerate.",
        ),
        click.option(
            "--pass-env",
            multiple=True,
            metavar="NAME",
            help="A variable that looks like a secret and that the script needs, such as HF_TOKEN or 'AWS_*'. Runs get "
            "no other one.",
        ),
        click.option(
            "--keep-global-batch",
            "global_batch",
            flag_value="keep",
            default=None,
            help="Try only what trains with your own global batch: the accumulation follows the micro-batch size.",
        ),
        map_option,
        click.option("--price-per-gpu-hour", type=float, metavar="PRICE", help="Say what samples and the study cost."),
        click.option("--timeout-seconds", type=float, help="dsopt ends a run that it has not measured by then."),
        click.option("--name", help="Name of the study. Default: the training script's."),
        click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- deepspeed …"),
    ):
        command = option(command)
    return command


@click.command(context_settings={"allow_interspersed_args": False})
@_options
@json_at_the_end_option
def tune(
    command: tuple[str, ...],
    scale_lr: bool,
    devices: str | None,
    earlier: str | None,
    notify: str | None,
    storage: str | None,
    as_json: bool,
    **settings: Any,  # noqa: ANN401 - click's options
) -> None:
    """Tune a COMMAND on this machine: create the study, work on it, print the summary.

    dsopt reads its search settings from the "autotuning" section of the DeepSpeed configuration.
    """
    with only_data_on_stdout(as_json), notifying(notify, storage) as notifier:
        study, problem = _tune(
            command,
            with_mappings(settings),
            notifier,
            scale_lr=scale_lr,
            devices=devices,
            earlier=earlier,
            storage=storage,
            may_ask=not as_json,
        )
    if as_json:
        print_results([study])
    if problem is not None:
        raise problem


@click.command(context_settings={"allow_interspersed_args": False})
@_options
@click.pass_context
def run(
    context: click.Context,
    /,
    command: tuple[str, ...],
    scale_lr: bool,
    devices: str | None,
    earlier: str | None,
    notify: str | None,
    storage: str | None,
    **settings: Any,  # noqa: ANN401 - click's options
) -> None:
    """Tune a COMMAND as `dsopt tune` does, then start the real training with the best configuration.

    The training runs as your own command would, to its own end; its exit code is this command's.
    """
    with notifying(notify, storage) as notifier:
        study, problem = _tune(
            command,
            with_mappings(settings),
            notifier,
            scale_lr=scale_lr,
            devices=devices,
            earlier=earlier,
            storage=storage,
            may_ask=False,
        )
    if problem is not None:
        raise problem
    if patiently(lambda: study.state) != "finished":
        raise DsoptError(
            f"study '{study.name}' is not finished; nothing was trained. Continue with: dsopt worker {study.name}"
        )
    if patiently(lambda: study.summary).comparison is None:
        raise DsoptError(f"study '{study.name}' has no configuration that runs; nothing was trained.")
    best = patiently(lambda: study.find_best(apply_lr_scaling=scale_lr))
    click.echo(f"\nTraining with the best configuration: {best.command}\n")
    context.exit(study.train(apply_lr_scaling=scale_lr, devices=devices, tell=click.echo))


def _tune(
    command: tuple[str, ...],
    settings: Mapping[str, Any],
    notifier: Notifier,
    *,
    scale_lr: bool,
    devices: str | None,
    earlier: str | None,
    storage: str | None,
    may_ask: bool,
) -> "tuple[Study, DsoptError | None]":
    """Creates the study of a command, or continues it, and works on it in this process.

    If the script has a batch of its own, a person at a terminal may go on with a study that maps its flag.

    Returns:
        The last study, and the error to end with, if there is one.
    """
    hear_drains()
    calculate_on_one_thread()
    from dsopt.api.tuning import begin_tuning

    pool = pool_with_nodes(devices)
    while True:
        study = begin_tuning(command, settings, pool, earlier, storage)
        show_created(study, earlier)
        say(f"{'Created' if study.is_new else 'Continuing'} study '{study.name}'. {page_line(study.name, storage)}")
        gave_up, problem = None, None
        try:
            # also without scaling: an earlier call may have written the rate scaled
            problem = work_on([study], pool, notifier, scale_lr=scale_lr)
        except DsoptError as error:
            gave_up = error
        mapped = offered(study, why=gave_up, may_ask=may_ask)
        if mapped is None and gave_up is not None:
            raise gave_up
        if mapped is None:
            return study, problem
        settings, earlier = mapped.settings(settings), mapped.earlier
