"""What the ranks of a run that is over have told of this machine's files."""

import contextlib
import os
import platform
from typing import TypeVar

from dsopt.protocol.event_reader import parse
from dsopt.protocol.events import Moved, Saved
from dsopt.protocol.run_dir import RunDir

_Told = TypeVar("_Told", Saved, Moved)


def told_here(run_dir: RunDir, kind: type[_Told]) -> list[_Told]:
    """The events of a kind that are of this machine, each rank's in its own order.

    None are from a folder that a database names and no worker of this user has made.
    """
    mark, found = f'"{kind.kind}"'.encode(), list[_Told]()
    try:
        is_own = run_dir.mark.stat().st_uid == os.getuid()
    except OSError:
        return []
    for events in run_dir.all_events() if is_own else ():
        with contextlib.suppress(OSError), events.open("rb") as lines:
            for line in lines:
                event = parse(line) if mark in line else None
                if isinstance(event, kind) and event.host == platform.node():
                    found.append(event)
    return found
