"""Does something in the database, however long it takes until the database is there, or a disk can be written to."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from dsopt.errors import Interrupted
from dsopt.store.heartbeat import LEASE_SECONDS
from dsopt.store.trouble import database_error, is_away
from dsopt.worker.disk import unusable
from dsopt.worker.happenings import Happening, WorkerPaused, WorkerWentOn

_T = TypeVar("_T")
_PAUSES: Final = (0.2, 5.0)  # the shortest and the longest between two tries


class Patience:
    """Tries again while the database is away, and says so once.

    Args:
        stop: set when someone asked the worker to stop: then nobody waits any more.
        tell: told when it waits, and when it goes on.
        unlock: called when it has waited for a lease's time; frees the database, if it can, and returns what it did.
    """

    def __init__(
        self,
        stop: threading.Event,
        tell: Callable[[Happening], None],
        unlock: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._unlock = unlock
        self._stop = stop
        self._tell = tell
        self._asking_since: float | None = None
        self._unanswered_since: float | None = None
        self.failures = 0  # how many questions have failed so far

    @property
    def asking_seconds(self) -> float:
        """For how long the current question has been without an answer."""
        since = self._asking_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def unanswered_seconds(self) -> float:
        """For how long the database has answered nothing that it was asked, over all tries."""
        since = self._unanswered_since
        return 0.0 if since is None else time.monotonic() - since

    def __call__(self, act: Callable[[], _T], folder: Path | None = None) -> _T:
        """What `act` returns once the database answers and, if it writes into a folder, that folder's disk takes it.

        Raises:
            Interrupted: someone asked the worker to stop while it waited.
        """
        pause, longest = _PAUSES
        is_told = False
        began = time.monotonic()
        while True:
            self._asking_since = time.monotonic()
            self._unanswered_since = self._unanswered_since or self._asking_since
            try:
                found = act()
            except Exception as error:
                why = _why_to_wait(error, folder)
                if why is None:
                    self._unanswered_since = None
                    raise
                self.failures += 1
                if not is_told:
                    self._tell(WorkerPaused(why=why))
                    is_told = True
                if time.monotonic() - began > LEASE_SECONDS and (done := self._unlock()) is not None:
                    self._tell(WorkerPaused(why=done))
            else:
                self._unanswered_since = None
                if is_told:
                    self._tell(WorkerWentOn())
                return found
            finally:
                self._asking_since = None
            if self._stop.wait(pause):
                raise Interrupted
            pause = min(longest, 1.5 * pause)


def _why_to_wait(error: Exception, folder: Path | None) -> str | None:
    """What is in the way that may soon be gone; None: nothing is."""
    if is_away(error):
        return f"the database cannot be used now: {database_error(error) or error}"
    return unusable(folder, error) if folder is not None and isinstance(error, OSError) else None
