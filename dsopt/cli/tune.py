"""`dsopt tune -- deepspeed …`: create a study from a command, work on it here, print the summary."""

from pathlib import Path
from typing import Any

import click

from dsopt.cli.options import devices_option, open_store, storage_option
from dsopt.cli.worker import run_worker
from dsopt.experiment.devices import parse_devices
from dsopt.study.command import LaunchCommand
from dsopt.study.load import build_spec
from dsopt.worker.knowledge import ranks_of


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- deepspeed …")
@click.option("--name", help="Name of the study. Default: the training script's.")
@click.option("--timeout-seconds", type=float, help="A run that has not been measured by then is ended.")
@click.option("--memory-per-device", metavar="SIZE", help="Cap on what a rank may use of its device, such as 24GiB.")
@devices_option
@storage_option
def tune(
    command: tuple[str, ...],
    name: str | None,
    timeout_seconds: float | None,
    memory_per_device: str | None,
    devices: str | None,
    storage: str,
) -> None:
    """Tune a COMMAND on this machine: create the study, work on it, print the summary.

    Settings of the search come from the "autotuning" section of the DeepSpeed configuration.
    """
    where = "command line"
    parsed = LaunchCommand.parse(command, where)
    content: dict[str, Any] = {
        "name": name or Path(parsed.script).stem.replace(" ", "-"),
        "command": list(command),  # the shell has split it already
        "cwd": str(Path.cwd()),
        "timeout_seconds": timeout_seconds,
        "memory_per_device": memory_per_device,
    }
    spec, warnings = build_spec({key: value for key, value in content.items() if value is not None}, where)
    pool = parse_devices(devices)
    ranks_of(spec, pool)  # before anything is created
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    store = open_store(storage, make=True)
    made, is_new = store.create(spec)
    click.echo(f"{'Created' if is_new else 'Going on with'} study '{made.name}'.")
    if not is_new and store.resume(made):
        made = store.get(made.name)
    run_worker(store, [made], pool)
