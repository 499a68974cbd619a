"""`--notify`: which endings a worker's person hears of, each once."""

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dsopt.api.storage import NOTIFY_VARIABLE, database_error, is_away, shown_storage
from dsopt.cli.options import print_warnings
from dsopt.errors import DsoptError, Interrupted

if TYPE_CHECKING:
    from dsopt.api.events import Event
    from dsopt.api.outcome import StudyOutcome

_F = TypeVar("_F", bound=Callable[..., Any])


def notify_option(command: _F) -> _F:
    """`--notify`: a webhook or a command."""
    return click.option(
        "--notify",
        metavar="WHAT",
        help="When a study ends, or the worker ends with an error: POST a JSON document to this http(s):// URL, or run "
        f"this command with it on stdin. Default: {NOTIFY_VARIABLE}.",
    )(command)


class Notifier:
    """Sends what a person asked for, one after the other, while the worker works: no signal waits for a slow command.

    What goes wrong with it is a warning and changes nothing else.
    """

    def __init__(self, what: str | None, storage: str | None) -> None:
        self._what = what
        self._storage = storage
        self._open: dict[str, None] = {}  # the studies that are worked on and whose ending was not told
        self._in_turn: str | None = None
        self._last: threading.Thread | None = None  # that sends, or has sent
        self._trouble: queue.SimpleQueue[str] = queue.SimpleQueue()

    def watch(self, names: "list[str]") -> None:
        """Studies that are going to be worked on."""
        self._open |= dict.fromkeys(names)

    def on(self, event: "Event") -> None:
        """Takes in an event of the worker."""
        from dsopt.api.events import StudyFinished, StudyProgressed

        self._warn()
        match event:
            case StudyFinished(study=study) if self._what is not None:
                self._look_at(study.name)
            case StudyProgressed(study=study) if study.name != self._in_turn:
                self.look(but=study.name)  # the turn of another one is over: it may have been stopped
                self._in_turn = study.name
                self.watch([study.name])

    def look(self, but: str | None = None) -> None:
        """Tells of each study that has ended."""
        if self._what is not None:
            for name in [name for name in self._open if name != but]:
                self._look_at(name)

    def failed(self, error: BaseException) -> None:
        """Tells of the studies that an error keeps from going on: those that it names, else all."""
        self.look()
        text = database_error(error) or str(error) or type(error).__name__
        named = [name for name in self._open if f"'{name}'" in text]
        if not self._open:
            self._send(None, "stuck", text)
        for name in named or list(self._open):
            self._send(name, "stuck", text)

    def wait(self) -> None:
        """Waits until all that was sent has arrived, or has not."""
        if self._last is not None:
            self._last.join()
        self._warn()

    def _warn(self) -> None:
        while not self._trouble.empty():
            print_warnings([self._trouble.get()])

    def _look_at(self, name: str) -> None:
        """Tells of a study if it has ended."""
        import dsopt
        from dsopt.api.outcome import outcome_of

        try:
            with dsopt.load_study(name, storage=self._storage) as study:
                if study.state not in ("finished", "stopped"):
                    return
                found = outcome_of(study)
                self._send(name, found.state, found.sentence, found)
        except Exception as error:  # the database is away, or somebody has deleted the study
            if is_away(error):
                return  # it is asked again
            print_warnings([f"no notification about study '{name}': {database_error(error) or error}"])
        self._open.pop(name, None)

    def _send(
        self,
        name: str | None,
        state: str,
        sentence: str,
        found: "StudyOutcome | None" = None,
    ) -> None:
        if self._what is None:
            return
        from dsopt.api.notifying import NotDelivered, Notification, node_name, send

        storage = None
        with contextlib.suppress(DsoptError):
            storage = shown_storage(self._storage)
        kept = ("factor", "interval", "own_global_batch", "best_global_batch")
        figures = {key: getattr(found, key) for key in kept} if found is not None else {}
        about = Notification(study=name, state=state, sentence=sentence, storage=storage, node=node_name(), **figures)

        def deliver(what: str, previous: threading.Thread | None) -> None:
            if previous is not None:
                previous.join()
            try:
                send(what, about)
            except NotDelivered as error:
                whose = f" about study '{name}'" if name else ""
                self._trouble.put(f"the notification{whose} ({state}) was not delivered: {error}")

        self._last = threading.Thread(target=deliver, args=(self._what, self._last), name="dsopt-notify", daemon=True)
        self._last.start()


@contextlib.contextmanager
def notifying(what: str | None, storage: str | None) -> Iterator[Notifier]:
    """Notifies while a worker works, and of the error that ends it. Nobody is told of a Ctrl-C or a SIGTERM.

    Raises:
        DsoptError: `what` is neither a URL nor a command.
    """
    origin = "--notify" if what is not None else NOTIFY_VARIABLE
    what = what if what is not None else os.environ.get(NOTIFY_VARIABLE) or None
    if what is not None:
        what = what.strip()
        from dsopt.api.notifying import check_target

        check_target(what, origin)
    notifier = Notifier(what, storage)
    try:
        yield notifier
    except (BrokenPipeError, Interrupted, click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        notifier.failed(error)
        notifier.wait()
        raise
    else:
        notifier.look()
        notifier.wait()
