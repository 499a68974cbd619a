"""What the ranks of a run have told of files."""

import contextlib
import os
import platform
from collections.abc import Iterator
from typing import Final, TypeVar

from dsopt.protocol.event_reader import parse
from dsopt.protocol.events import Event, Found, Moved, Saved
from dsopt.protocol.run_dir import RunDir, tail

_LAST_BYTES: Final = 2**16  # of events; more than the longest has
_Told = TypeVar("_Told", bound=Event)
_OfFile = TypeVar("_OfFile", Saved, Moved, Found)


def told_last(run_dir: RunDir) -> Iterator[Saved]:
    """What each rank of this machine told last, if it was that."""
    for events in run_dir.all_events() if _is_own(run_dir) else ():
        with contextlib.suppress(OSError):
            lines = tail(events, _LAST_BYTES).splitlines()
            event = parse(lines[-1].encode()) if lines else None
            if isinstance(event, Saved) and event.host == platform.node():
                yield event


def told(run_dir: RunDir, kind: type[_Told]) -> Iterator[_Told]:
    """The events of a kind, each rank's in its own order.

    None are from a folder that a database names and no worker of this user has made.
    """
    mark = f'"{kind.kind}"'.encode()
    for events in run_dir.all_events() if _is_own(run_dir) else ():
        with contextlib.suppress(OSError), events.open("rb") as lines:
            for line in lines:
                event = parse(line) if mark in line else None
                if isinstance(event, kind):
                    yield event


def _is_own(run_dir: RunDir) -> bool:
    """Whether this user's worker has made the folder."""
    try:
        return run_dir.mark.stat().st_uid == os.getuid()
    except OSError:
        return False


def has_told(run_dir: RunDir, *kinds: type[Event]) -> bool:
    """Whether any rank of a run has told of one of these kinds."""
    return any(True for kind in kinds for _ in told(run_dir, kind))


def told_here(run_dir: RunDir, kind: type[_OfFile]) -> list[_OfFile]:
    """Those that are of this machine."""
    return [event for event in told(run_dir, kind) if event.host == platform.node()]
