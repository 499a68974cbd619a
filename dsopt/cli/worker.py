"""`dsopt worker`: works on studies with the devices of this machine."""

import signal
import threading
from collections.abc import Sequence
from types import FrameType

import click

from dsopt.cli.live import watch
from dsopt.cli.options import devices_option, open_store, storage_option
from dsopt.cli.result import is_unconfirmed, not_confirmed, result_text, write_results
from dsopt.errors import DsoptError, Interrupted
from dsopt.experiment.devices import DevicePool, parse_devices
from dsopt.store.studies import NoStudiesError, Store, StoredStudy
from dsopt.worker.happenings import Happening, StudyFinished
from dsopt.worker.loop import Worker


@click.command()
@click.argument("studies", nargs=-1, metavar="[STUDY …]")
@devices_option
@storage_option
def worker(studies: tuple[str, ...], devices: str | None, storage: str) -> None:
    """Work on studies (default: all that are not finished) until they are finished."""
    pool = parse_devices(devices)
    try:
        store = open_store(storage)
    except NoStudiesError:
        if studies:
            raise
        click.echo("There is no study to work on. Create one with: dsopt study create FILE")
        return
    if studies:
        chosen = [store.get(name) for name in dict.fromkeys(studies)]
    else:
        chosen = _readable(store)
        if not chosen:
            click.echo("There is no study to work on. Create one with: dsopt study create FILE")
            return
    run_worker(store, chosen, pool)


def _readable(store: Store) -> list[StoredStudy]:
    """The studies that are not finished; one that cannot be read does not keep the others waiting."""
    found = []
    for header in store.headers():
        if header.state not in ("finished", "stopped"):
            try:
                found.append(store.get(header.name))
            except DsoptError as error:
                click.echo(f"warning: {error}", err=True)
    return found


def run_worker(store: Store, studies: Sequence[StoredStudy], pool: DevicePool) -> None:
    """Works on studies in this process and prints the summary of each that is finished.

    Raises:
        DsoptError: a study ended without a confirmed result.
    """
    open_ones = [study for study in studies if study.state not in ("finished", "stopped")]
    if open_ones:
        _work(store, open_ones, pool)
    unconfirmed = []
    for study in studies:
        state = store.state(study)
        if state == "finished":
            click.echo(f"\nStudy '{study.name}' is finished.\n\n{result_text(store, study)}")
            unconfirmed += [study.name] if is_unconfirmed(store, study) else []
        elif state == "stopped":
            click.echo(f"\nStudy '{study.name}' is stopped. Let it go on with: dsopt study resume {study.name}")
    if unconfirmed:
        raise not_confirmed(unconfirmed)


def _work(store: Store, studies: Sequence[StoredStudy], pool: DevicePool) -> None:
    """Works on studies until they are finished or stopped, or a signal comes."""
    stop = threading.Event()

    def ask_to_stop(_signal: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C does not wait

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask_to_stop)
    with watch(pool) as show:

        def on_happening(happening: Happening) -> None:
            show(happening)
            if isinstance(happening, StudyFinished):
                write_results(store, happening.study)

        try:
            Worker(store, pool, stop, on_happening).work(studies)
        except Interrupted:
            names = " ".join(study.name for study in studies)
            raise Interrupted(
                f"Stopped. The run in hand was ended and its claim given back; go on with: dsopt worker {names}"
            ) from None
