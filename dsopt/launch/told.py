"""What the ranks of a run have told of files."""

import contextlib
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from dsopt.protocol.event_reader import parse
from dsopt.protocol.events import Event, Found, Moved, Saved
from dsopt.protocol.run_dir import ASIDE, RunDir
from dsopt.protocol.tail import tail

_LAST_BYTES: Final = 2**16  # of events; more than the longest has
_Told = TypeVar("_Told", bound=Event)
_OfFile = TypeVar("_OfFile", Saved, Moved, Found)


def told_last(run_dir: RunDir) -> Iterator[Saved]:
    """What each rank of this machine told last, if it was that."""
    for events in run_dir.all_events() if is_own(run_dir) else ():
        with contextlib.suppress(OSError):
            lines = tail(events, _LAST_BYTES).splitlines()
            event = parse(lines[-1].encode()) if lines else None
            if isinstance(event, Saved) and _is_here(run_dir, event):
                yield event


def told(run_dir: RunDir, kind: type[_Told]) -> Iterator[_Told]:
    """The events of a kind, each rank's in its own order.

    None are from a folder that a database names and no worker of this user has made.
    """
    return _told_in(run_dir, run_dir.all_events(), kind)


def _told_in(run_dir: RunDir, files: Iterable[Path], kind: type[_Told]) -> Iterator[_Told]:
    mark = f'"{kind.kind}"'.encode()
    for events in files if is_own(run_dir) else ():
        with contextlib.suppress(OSError), events.open("rb") as lines:
            for line in lines:
                event = parse(line) if mark in line else None
                if isinstance(event, kind):
                    yield event


def is_own(run_dir: RunDir) -> bool:
    """Whether this user's worker has made a run's folder; not, if that is none, or closed to us."""
    try:
        return run_dir.is_own
    except OSError:
        return False


def has_told(run_dir: RunDir, *kinds: type[Event]) -> bool:
    """Whether any rank of a run has told of one of these kinds."""
    return any(True for kind in kinds for _ in told(run_dir, kind))


def has_told_formerly(run_dir: RunDir, kind: type[Event]) -> bool:
    """Whether any rank of a former start has told of this kind."""
    return any(True for _ in _told_in(run_dir, run_dir.all_former_events(), kind))


def told_here(run_dir: RunDir, kind: type[_OfFile]) -> list[_OfFile]:
    """Those that are of this machine, or of the one that it stands for (`RunDir.host`)."""
    return [event for event in told(run_dir, kind) if _is_here(run_dir, event)]


def told_ever_here(run_dir: RunDir, kind: type[_OfFile]) -> list[_OfFile]:
    """The same with those of a former start, which is undone, but for folders that others used."""
    found = [event for event in _told_in(run_dir, run_dir.all_former_events(), kind) if _is_here(run_dir, event)]
    found += told_here(run_dir, kind)
    return found


def _is_here(run_dir: RunDir, event: Saved | Moved | Found) -> bool:
    if run_dir.host is None:
        return event.host == platform.node()
    if event.host != run_dir.host:
        return False
    # only what both machines see is the same file there and here
    if isinstance(event, Saved) and event.inode:
        return bool(event.born)  # which tells, with the number
    device = _device_of(Path(event.path).parent)
    if isinstance(event, Moved) and not event.is_copy and Path(event.to).parent.name.endswith(ASIDE):
        # nobody else has a name like that
        return os.path.lexists(event.to) and device == _device_of(Path(event.to).parent)
    return device == _device_of(run_dir.path)


def _device_of(folder: Path) -> int | None:
    """The device of a folder, or of the nearest one above it that is there."""
    for place in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            return place.stat().st_dev
    return None
