"""`dsopt worker`: works on studies with the devices of this machine."""

import signal
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from dsopt.cli.options import (
    devices_option,
    json_at_the_end_option,
    only_data_on_stdout,
    print_json,
    print_warnings,
    storage_option,
)
from dsopt.errors import DsoptError, Interrupted

if TYPE_CHECKING:
    from dsopt import Study, WorkerThread
    from dsopt.api.workers import Devices


@click.command()
@click.argument("studies", nargs=-1, metavar="[STUDY …]")
@devices_option
@storage_option
@json_at_the_end_option
def worker(studies: tuple[str, ...], devices: str | None, storage: str | None, as_json: bool) -> None:
    """Work on studies (default: all that are not finished) until they are finished."""
    from dsopt.api.keys import notes_on
    from dsopt.api.studies import load_studies, load_unfinished
    from dsopt.api.workers import pool_of

    pool = pool_of(devices)
    with only_data_on_stdout(as_json):
        if studies:
            chosen = load_studies(studies, storage=storage)
        else:
            chosen, problems = load_unfinished(storage=storage)
            print_warnings(problems)
            if not chosen:
                click.echo("There is no study to work on. Create one with: dsopt study create FILE")
        print_warnings(notes_on(chosen))
        problem = work_on(chosen, pool)
    if as_json:
        print_results(chosen)
    if problem is not None:
        raise problem


def print_results(studies: "Sequence[Study]") -> None:
    """Prints the outcome of each study as one JSON document."""
    results: list[dict[str, Any]] = [study.outcome.to_json() for study in studies]
    print_json({"studies": results})


def work_on(studies: "Sequence[Study]", pool: "Devices") -> DsoptError | None:
    """Works on studies in this process and prints the summary of each that is finished.

    Returns:
        The error to end with if a study ended without a confirmed result, else None.

    Raises:
        DsoptError: studies cannot continue before the user has fixed something.
        Interrupted: a signal arrived; the current runs are given back.
    """
    from dsopt.api.results import not_confirmed

    open_ones = [study for study in studies if study.state not in ("finished", "stopped")]
    if open_ones:
        _work(open_ones, pool)
    unconfirmed = []
    for study in studies:
        state = study.state
        if state == "finished":
            study.write_files()
            click.echo(f"\nStudy '{study.name}' is finished.\n\n{study.outcome.text()}")
            unconfirmed += [study.name] if study.is_unconfirmed else []
        elif state == "stopped":
            click.echo(f"\nStudy '{study.name}' is stopped. Resume it with: dsopt study resume {study.name}")
    return not_confirmed(unconfirmed) if unconfirmed else None


def _work(studies: "Sequence[Study]", pool: "Devices") -> None:
    """Works on studies until they are finished or stopped, or a signal arrives."""
    import dsopt
    from dsopt.cli.live import watch

    with watch(str(pool)) as show, dsopt.start_worker(studies, pool) as running:
        _stop_on_signals(running)
        for event in running.events():
            show(event)
    running.join()
    if running.was_stopped:
        names = " ".join(study.name for study in studies)
        raise Interrupted(f"Stopped. The current run was discarded; continue with: dsopt worker {names}")


def _stop_on_signals(running: "WorkerThread") -> None:
    """Asks a worker to stop when this process gets SIGINT or SIGTERM; a second Ctrl-C raises KeyboardInterrupt."""

    def ask_to_stop(_signal: int, _frame: FrameType | None) -> None:
        running.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask_to_stop)
