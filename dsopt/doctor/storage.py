"""The storage: whether it can be reached, belongs to this version, takes writes, and has the same time."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dsopt.doctor.check import Check, ok, problem, skipped, warning
from dsopt.doctor.disks import first_folder, may_write
from dsopt.errors import DsoptError
from dsopt.launch.leftovers import is_on_network
from dsopt.store.examine import examine
from dsopt.store.url import exists, shown, storage_url

STORAGE, CLOCK = "storage", "clock"
_UPGRADE: Final = "dsopt db upgrade"
_MOST_SECONDS: Final = 2.0  # that two clocks may differ by


def check_storage(storage: Callable[[], str]) -> Iterator[Check]:
    """The database and its clock; it creates none."""
    url = storage_url(storage())
    path = Path(str(url.database)) if url.drivername == "sqlite" else None
    if path is not None and not exists(url):
        yield _new_file(path, shown(url))
        yield skipped(CLOCK, "there is no database yet; SQLite will use this machine's clock")
        return
    try:
        found = examine(url)
    except DsoptError as error:
        yield problem(STORAGE, str(error), _UPGRADE if _UPGRADE in str(error) else "")
        yield skipped(CLOCK, "the database cannot be used")
        return
    if path is not None and is_on_network(path):
        yield warning(
            STORAGE,
            f"{found.shown} is on a network file system, on which SQLite can lose data",
            "Move it to a local disk, or use PostgreSQL: --storage postgresql://USER:PASSWORD@HOST/NAME",
        )
    elif path is not None and not may_write(path.parent):
        yield problem(STORAGE, f"{found.shown}: its folder cannot be written to", f"chmod u+w {path.parent}")
    elif found.revision is None:
        yield ok(STORAGE, f"{found.shown} is empty; the first study creates its tables")
    else:
        yield ok(STORAGE, f"{found.shown} has the current revision, {found.revision}, and takes writes")
    yield _clock(found.behind_seconds)


def _new_file(path: Path, name: str) -> Check:
    folder = first_folder(path)
    if not may_write(folder):
        return problem(
            STORAGE,
            f"{name} does not exist, and {folder} cannot be written to",
            f"chmod u+w {folder}, or name another file: --storage sqlite:///FILE",
        )
    return ok(STORAGE, f"{name} does not exist yet; the first study creates it")


def _clock(behind_seconds: float | None) -> Check:
    if behind_seconds is None:
        return ok(CLOCK, "SQLite uses this machine's clock")
    differs = f"the database's clock is {abs(behind_seconds):.1f} s {'behind' if behind_seconds > 0 else 'ahead of'}"
    if abs(behind_seconds) > _MOST_SECONDS:
        return warning(
            CLOCK,
            f"{differs} this machine's; ages and durations in reports are wrong by that",
            "Set both clocks by NTP: timedatectl set-ntp true",
        )
    return ok(CLOCK, f"{differs} this machine's")
