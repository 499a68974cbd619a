"""`dsopt tune|run -- deepspeed …`: a study from a command, worked on here; `run` trains with the result."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from dsopt.cli.creating import create_study
from dsopt.cli.options import devices_option, open_store, scaling_option, storage_option, take_over_option
from dsopt.cli.result import reopen, summary_of, write_results
from dsopt.cli.worker import run_worker
from dsopt.errors import DsoptError
from dsopt.experiment.devices import parse_devices
from dsopt.experiment.results import results_folder
from dsopt.experiment.training import train
from dsopt.report.files import optimum
from dsopt.store.studies import Store, StoredStudy
from dsopt.study.command import LaunchCommand
from dsopt.study.load import build_spec
from dsopt.study.typed import typed_words
from dsopt.worker.knowledge import load_history, most_ranks_of

WHERE: Final = "command line"
_F = TypeVar("_F", bound=Callable[..., Any])


def _options(command: _F) -> _F:
    """The arguments that `tune` and `run` share."""
    for option in (
        storage_option,
        devices_option,
        scaling_option,
        take_over_option,
        click.option("--memory-per-device", metavar="SIZE", help="Cap on what a rank may use of its device: 24GiB."),
        click.option(
            "--start",
            type=click.Choice(["shared", "warm", "direct", "launcher"]),
            help="Let ranks run several micro-batch sizes of one setting, fork them from a process that has imported "
            "what the script imports (warm, the default), start each directly, or start the launcher.",
        ),
        click.option(
            "--isolate",
            multiple=True,
            metavar="FLAG",
            help="A flag of the script that names what it writes, such as --isolate=--save-dir: each run gets its own. "
            "Those of the Hugging Face Trainer and Accelerate are known.",
        ),
        click.option("--timeout-seconds", type=float, help="A run that has not been measured by then is ended."),
        click.option("--name", help="Name of the study. Default: the training script's."),
        click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- deepspeed …"),
    ):
        command = option(command)
    return command


@click.command(context_settings={"allow_interspersed_args": False})
@_options
def tune(
    command: tuple[str, ...],
    scale_lr: bool,
    devices: str | None,
    earlier: str | None,
    storage: str,
    **settings: Any,  # noqa: ANN401 - click's options
) -> None:
    """Tune a COMMAND on this machine: create the study, work on it, print the summary.

    Settings of the search come from the "autotuning" section of the DeepSpeed configuration.
    """
    tune_command(command, settings, scale_lr=scale_lr, devices=devices, earlier=earlier, storage=storage)


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
    storage: str,
    **settings: Any,  # noqa: ANN401 - click's options
) -> None:
    """Tune a COMMAND as `dsopt tune` does, then start the real training with the best configuration.

    The training runs as your own command would, to its own end; its exit code is this command's.
    """
    store, study = tune_command(command, settings, scale_lr=scale_lr, devices=devices, earlier=earlier, storage=storage)
    if store.state(study) != "finished":
        raise DsoptError(
            f"study '{study.name}' is not finished; nothing was trained. Go on with: dsopt worker {study.name}"
        )
    history = load_history(store, study)
    if summary_of(store, study).comparison is None:
        raise DsoptError(f"study '{study.name}' has no configuration that runs; nothing was trained.")
    config = results_folder(study.spec) / "ds_config_optimal.json"
    best = optimum(study.spec, history, scale_lr=scale_lr).command.with_config(str(config))
    click.echo(f"\nTraining with the best configuration: {best}\n")
    context.exit(train(best, Path(study.spec.cwd)))


def content_of(command: tuple[str, ...], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a study file would say of a command that was typed here, with the settings that were given."""
    return {
        "name": LaunchCommand.parse(typed_words(command, WHERE), WHERE).study_name,
        "command": list(command),  # the shell has split it already
        "cwd": str(Path.cwd()),
        **{key: list(v) if isinstance(v, tuple) else v for key, v in settings.items() if v not in (None, ())},
    }


def tune_command(
    command: tuple[str, ...],
    settings: dict[str, Any],
    *,
    scale_lr: bool,
    devices: str | None,
    earlier: str | None,
    storage: str,
) -> tuple[Store, StoredStudy]:
    """Creates the study of a command, or goes on with it, and works on it in this process."""
    spec, warnings = build_spec(content_of(command, settings), WHERE)
    pool = parse_devices(devices)
    most_ranks_of(spec, pool)  # before anything is created
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    store = open_store(storage, make=True)
    study, is_new = create_study(store, spec, earlier)
    click.echo(f"{'Created' if is_new else 'Going on with'} study '{study.name}'.")
    if not is_new and reopen(store, study):
        study = store.get(study.name)
    run_worker(store, [study], pool)
    if store.state(study) == "finished":
        # also without scaling: an earlier call may have written the rate scaled
        write_results(store, study, scale_lr=scale_lr)
        advice = summary_of(store, study).batch_advice
        if scale_lr and advice is not None:
            click.echo(advice.text(applied=True))
    return store, study
