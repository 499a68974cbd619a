"""What the ranks of a run have told of files."""

import contextlib
import os
import platform
from collections.abc import Iterator
from typing import TypeVar

from dsopt.protocol.event_reader import parse
from dsopt.protocol.events import Moved, Saved
from dsopt.protocol.run_dir import RunDir

_Told = TypeVar("_Told", Saved, Moved)


def told(run_dir: RunDir, kind: type[_Told]) -> Iterator[_Told]:
    """The events of a kind, each rank's in its own order.

    None are from a folder that a database names and no worker of this user has made.
    """
    mark = f'"{kind.kind}"'.encode()
    try:
        is_own = run_dir.mark.stat().st_uid == os.getuid()
    except OSError:
        return
    for events in run_dir.all_events() if is_own else ():
        with contextlib.suppress(OSError), events.open("rb") as lines:
            for line in lines:
                event = parse(line) if mark in line else None
                if isinstance(event, kind):
                    yield event


def told_here(run_dir: RunDir, kind: type[_Told]) -> list[_Told]:
    """Those that are of this machine."""
    return [event for event in told(run_dir, kind) if event.host == platform.node()]
