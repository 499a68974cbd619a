"""`dsopt worker`: works on studies with the devices of this machine."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dsopt.api.one_thread import calculate_on_one_thread
from dsopt.cli.created import page_line
from dsopt.cli.nodes import given_engine, nodes_options, pool_with_nodes, speed_check_option
from dsopt.cli.notifications import Notifier, notify_option, notifying
from dsopt.cli.options import (
    complete_study,
    devices_option,
    json_at_the_end_option,
    only_data_on_stdout,
    print_json,
    print_warnings,
    storage_option,
)
from dsopt.cli.patiently import patiently
from dsopt.cli.prose import say
from dsopt.cli.signals import hear_drains, heeding_signals
from dsopt.errors import DsoptError, Interrupted

if TYPE_CHECKING:
    from dsopt import Study, WorkerInfo, WorkerThread
    from dsopt.api.workers import Devices

_LOOK_SECONDS = 1.0


@click.command()
@click.argument("studies", nargs=-1, metavar="[STUDY …]", shell_complete=complete_study)
@devices_option
@nodes_options
@click.option(
    "--exclusive", is_flag=True, help="Begin a run only on nodes where no other goes on, and keep others off."
)
@speed_check_option
@click.option("--until-idle", is_flag=True, help="End when there is nothing to begin, instead of waiting for others.")
@click.option("--drain", is_flag=True, help="Instead of working: let the workers of this node end after their runs.")
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="With --drain: of these nodes, such as 'gpu*'.")
@notify_option
@storage_option
@json_at_the_end_option
def worker(
    studies: tuple[str, ...],
    devices: str | None,
    exclusive: bool,
    until_idle: bool,
    drain: bool,
    nodes: tuple[str, ...],
    notify: str | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Work on studies until they are finished. Default: on all that are not, one after the other, new ones included.

    Ctrl-C, SIGTERM and SIGHUP end the current runs; other workers, or a later one, repeat them. SIGUSR1 lets them end
    first. To do that from elsewhere: dsopt worker --drain
    """
    if drain:
        if studies or devices or given_engine() or exclusive or until_idle or notify:
            raise click.UsageError("--drain starts no worker: it takes only --node, --storage and --json.")
        _drain(nodes, storage, as_json)
        return
    if nodes:
        raise click.UsageError("--node needs --drain.")
    hear_drains()
    calculate_on_one_thread()
    with only_data_on_stdout(as_json), notifying(notify, storage) as notifier:
        found, problem = _start(
            studies,
            pool_with_nodes(devices, is_exclusive=exclusive),
            storage,
            notifier,
            until_idle=until_idle,
        )
    if as_json:
        print_results(found)
    if problem is not None:
        raise problem


def _start(
    names: tuple[str, ...], pool: "Devices", storage: str | None, notifier: Notifier, *, until_idle: bool
) -> "tuple[Sequence[Study], DsoptError | None]":
    """Works on the studies of these names, or on all. Returns them and the error to end with."""
    from dsopt.api.notes import notes_on
    from dsopt.api.studies import load_studies

    if not names:
        return _work_on_all(pool, storage, notifier, until_idle=until_idle)
    studies = load_studies(names, storage=storage)
    print_warnings(notes_on(studies))
    for study in studies:
        say(page_line(study.name, storage))
    return studies, work_on(studies, pool, notifier, until_idle=until_idle)


def _work_on_all(
    pool: "Devices", storage: str | None, notifier: Notifier, *, until_idle: bool
) -> "tuple[Sequence[Study], DsoptError | None]":
    """Works on all studies, those included that are created meanwhile. Returns them and the error to end with."""
    import dsopt
    from dsopt.api.notes import notes_on
    from dsopt.api.studies import load_studies, load_unfinished

    studies, problems = load_unfinished(storage=storage)
    refused = DsoptError("\n".join(problems)) if problems else None
    print_warnings([*(problems if studies else ()), *notes_on(studies)])
    if refused is not None:
        notifier.failed(refused)
    if not studies:
        if refused is None:
            say("There is no study to work on: all are finished or stopped, or there is none (dsopt study list).")
        return studies, refused
    seen = _watch(lambda: dsopt.start_worker(None, pool, until_idle=until_idle, storage=storage), notifier)
    known = {study.name for study in studies}
    for name in seen:
        if name not in known:
            with contextlib.suppress(DsoptError):  # deleted meanwhile
                studies += load_studies([name], storage=storage)
    return studies, _print_ends(studies) or refused


def print_results(studies: "Sequence[Study]") -> None:
    """Prints the outcome of each study as one JSON document."""
    results: list[dict[str, Any]] = patiently(lambda: [study.outcome.to_json() for study in studies])
    print_json({"studies": results})


def work_on(
    studies: "Sequence[Study]",
    pool: "Devices",
    notifier: Notifier,
    *,
    until_idle: bool = False,
    scale_lr: bool | None = None,
) -> DsoptError | None:
    """Works on studies in this process and prints the answer of each that is finished.

    Args:
        studies: to work on.
        pool: the devices.
        notifier: told of what happens.
        until_idle: whether it ends when there is nothing to begin.
        scale_lr: whether the learning rate in the result files follows the batch; None: as in those that are there.

    Returns:
        The error to end with if a study ended without a confirmed result, else None.

    Raises:
        DsoptError: studies cannot continue before the user has fixed something.
        Interrupted: a signal arrived; the current runs are given back.
    """
    import dsopt

    open_ones = [study for study in studies if study.state not in ("finished", "stopped")]
    if open_ones:
        names = [study.name for study in open_ones]
        notifier.watch(names)
        _watch(lambda: dsopt.start_worker(open_ones, pool, until_idle=until_idle), notifier, names)
    return _print_ends(studies, scale_lr)


def _print_ends(studies: "Sequence[Study]", scale_lr: bool | None = None) -> DsoptError | None:
    """Prints what has become of studies. Returns the error to end with, if there is one."""
    from dsopt.api.results import not_confirmed

    unconfirmed = []
    for study in studies:
        show, is_unconfirmed = patiently(partial(_end_of, study, scale_lr))
        show()
        unconfirmed += [study.name] if is_unconfirmed else []
    return not_confirmed(unconfirmed) if unconfirmed else None


def _end_of(study: "Study", scale_lr: bool | None) -> tuple[Callable[[], None], bool]:
    """What prints what has become of a study, without asking the database again; whether its result is unconfirmed."""
    from dsopt.cli.ending import show_answer

    state = study.state
    if state != "finished":
        told = {
            "stopped": f"is stopped. Resume it with: dsopt study resume {study.name}",
            "deleted": "was deleted.",
        }
        ending = told.get(state, f"is not finished. Continue with: dsopt worker {study.name}")
        return lambda: say(f"\nStudy '{study.name}' {ending}"), False
    study.write_files(apply_lr_scaling=scale_lr)
    summary = None if study.is_comparison else study.summary
    if summary is not None and summary.comparison is not None:
        show = partial(show_answer, study.find_best(apply_lr_scaling=scale_lr))
    else:
        show = partial(say, (summary or study.table).text())

    def show_finished() -> None:
        click.echo(f"\nStudy '{study.name}' is finished.\n")
        show()

    return show_finished, summary is not None and summary.unconfirmed is not None


def _watch(start: "Callable[[], WorkerThread]", notifier: Notifier, names: "Sequence[str]" = ()) -> list[str]:
    """Shows what a worker does until it ends, by itself or by a signal. Returns the studies on which it has worked."""
    from dsopt.api.events import StudyProgressed
    from dsopt.cli.live import watch

    seen: dict[str, None] = {}
    with heeding_signals(start) as running, running, watch(running.devices) as show:
        print_warnings(running.warnings)
        for event in running.events():
            if isinstance(event, StudyProgressed):
                seen[event.study.name] = None
            show(event)
            notifier.on(event)
    running.join()
    if running.was_stopped:
        again = " ".join(["dsopt worker", *names])
        raise Interrupted(f"Stopped. Runs that were going on are discarded; continue with: {again}")
    return list(seen)


def _drain(nodes: tuple[str, ...], storage: str | None, as_json: bool) -> None:
    """Asks the workers of nodes to drain, and waits until they have left."""
    import dsopt

    asked = dsopt.drain_workers(nodes or [socket.gethostname()], storage=storage)
    if as_json:
        print_json([worker.to_json() for worker in asked])
    elif not asked:
        say(f"There is no worker on {', '.join(nodes) or 'this node'}. For all, see: dsopt workers")
    else:
        awake, silent = (_named(worker for worker in asked if worker.is_silent is which) for which in (False, True))
        if awake:
            say(f"Draining {awake}. Each ends after its current runs; Ctrl-C ends only this waiting for them.")
        if silent:
            say(f"Silent, not waited for: {silent}. It leaves if it is back before others take it for dead.")
    is_away = threading.Event()
    heard_at = {worker.id: time.monotonic() for worker in asked if not worker.is_silent}
    while heard_at:
        time.sleep(_LOOK_SECONDS)
        workers = patiently(lambda: dsopt.list_workers(storage=storage), is_away.set)
        if is_away.is_set():  # nobody could beat either
            is_away.clear()
            heard_at = dict.fromkeys(heard_at, time.monotonic())
        heard_at = _still_waited_for(heard_at, workers)


def _still_waited_for(heard_at: Mapping[str, float], workers: "Iterable[WorkerInfo]") -> dict[str, float]:
    """Which workers are there and not silent for long, and when each was last heard, by a clock that nobody sets."""
    from dsopt.api.who_works import SILENT_SECONDS

    now = time.monotonic()
    there = {worker.id: worker.silent_seconds > 0 and not worker.is_silent for worker in workers}  # and whether heard
    last = {each: now if there[each] else since for each, since in heard_at.items() if each in there}
    return {each: since for each, since in last.items() if now - since <= SILENT_SECONDS}


def _named(workers: "Iterable[WorkerInfo]") -> str:
    return ", ".join(f"{worker.node} (process {worker.pid})" for worker in workers)
