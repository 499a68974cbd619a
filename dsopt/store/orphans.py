"""Devices that attempts hold although they are over: who may free them, once the processes are known to be gone."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from dsopt.launch.devices import DevicePool
from dsopt.launch.log_holders import only_stopped_starters
from dsopt.launch.maker import as_from_here, maker_of
from dsopt.launch.processes import end_run, processes_of
from dsopt.launch.told import told_here
from dsopt.launch.undone import undo_elsewhere, undo_lost
from dsopt.protocol.events import Moved
from dsopt.protocol.presence import may_be_present
from dsopt.protocol.run_dir import RunDir
from dsopt.store import lease_queries as queries
from dsopt.store.identity import identity_of
from dsopt.store.leases import ANYWHERE, FILES, host_of
from dsopt.store.own_lease import NODE_SPEED
from dsopt.store.queries import Row
from dsopt.store.transactions import writing
from dsopt.store.workers import Registration

_deleted: dict[str, float] = {}  # attempts that are gone, and since when
_ELSEWHERE: Final = "elsewhere:"
_FOLDER_SECONDS: Final = 30.0  # in which workers of a run's own machine see to its end, and free its folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """Leases of an attempt that is over, as far as this worker may free them once its processes are gone.

    Attributes:
        attempt_id, run_dir: of the attempt.
        node: free what it holds on this node; None: all that it holds. `_ELSEWHERE`: nothing, and only undo what it
            did to files that this machine sees, too.
        is_hidden: whether it ran on this machine where this worker does not see its processes, such as in another
            container.
        has_restarted: whether this machine, on which it ran, has restarted since.
    """

    attempt_id: str
    run_dir: Path
    node: str | None = None
    is_hidden: bool = False
    has_restarted: bool = False


def find_orphans(connection: sa.Connection, me: Registration, pool: DevicePool) -> list[Orphan]:
    """The attempts that hold devices although they are over, and whose end this worker can see to."""
    left: dict[str, list[Row]] = {}
    for row in queries.leases_left(connection):
        left.setdefault(row["attempt_id"], []).append(row)
    found = (_orphan(attempt_id, rows, me, pool) for attempt_id, rows in left.items())
    return [orphan for orphan in found if orphan is not None]


def _orphan(attempt_id: str, rows: Sequence[Row], me: Registration, pool: DevicePool) -> Orphan | None:
    run_dir, host = Path(rows[0]["run_dir"]), rows[0]["host"]
    if host in (me.host, host_of(pool)):
        return Orphan(attempt_id=attempt_id, run_dir=run_dir)
    if _boot(host) == _boot(me.host):
        return Orphan(attempt_id=attempt_id, run_dir=run_dir, is_hidden=True)
    names = {(row["node"], row["device"]) for row in rows}
    held, own = {device for node, device in names if node == ANYWHERE}, set(pool.uuids.values())
    began = {node for node, device in names if device.startswith("port:")}
    # a name may be that of several machines, a GPU's cannot
    if held & own if held and own else me.node in began:
        is_boot = _boot(host) != host  # not an engine, which goes on
        return Orphan(attempt_id=attempt_id, run_dir=run_dir, has_restarted=is_boot)  # it began here
    if me.node in {node for node, _ in names}:
        return Orphan(attempt_id=attempt_id, run_dir=run_dir, node=me.node)
    if FILES in {node for node, _ in names} and _over_seconds(rows[0]) > _FOLDER_SECONDS:
        return Orphan(attempt_id=attempt_id, run_dir=run_dir, node=FILES)  # its machine may never come back
    seen = as_from_here(RunDir(run_dir))
    is_left = seen.host is not None and not seen.undone.exists()
    return Orphan(attempt_id=attempt_id, run_dir=run_dir, node=_ELSEWHERE) if is_left else None


def _over_seconds(row: Row) -> float:
    """For how long an attempt is over; one that was deleted, since this process has first seen that."""
    if row["over_seconds"] is not None:
        return float(row["over_seconds"])
    return time.monotonic() - _deleted.setdefault(row["attempt_id"], time.monotonic())


def _boot(host: str) -> str:
    return host.partition("/")[0]


def sweep(engine: sa.Engine, orphans: Sequence[Orphan]) -> bool:
    """Frees devices that runs without a worker held, after ending their processes. Returns whether any came free.

    Whoever recorded that such a run is lost may be anywhere; only on its machine can its processes be ended. A run
    whose worker lives is that worker's business: a database may be a copy of the one that it goes on in. A run of
    another database is nobody's once its worker is gone, as after that database was moved.
    """
    is_any_free, owner = False, identity_of(engine) if orphans else ""
    for orphan in orphans:
        with contextlib.suppress(PermissionError):  # something in its folder is another user's
            is_any_free |= _sweep(engine, orphan, owner)
    return is_any_free


def _sweep(engine: sa.Engine, orphan: Orphan, owner: str) -> bool:
    run_dir = RunDir(orphan.run_dir)
    if orphan.node in (FILES, _ELSEWHERE):
        undo_elsewhere(run_dir)
    if orphan.node == FILES:
        with writing(engine) as connection:
            queries.end_leases(connection, orphan.attempt_id, node=FILES)
    if orphan.node in (FILES, _ELSEWHERE):
        return orphan.node == FILES
    maker = maker_of(run_dir)
    if maker != "gone" and run_dir.is_of_another(owner):
        with writing(engine) as connection:
            queries.end_leases(connection, orphan.attempt_id, node=orphan.node)
        return False
    if _is_closed(run_dir):
        if orphan.has_restarted:
            with writing(engine) as connection:
                queries.end_leases(connection, orphan.attempt_id)
        return orphan.has_restarted
    if maker == "lives" and _goes_on(run_dir, is_hidden=orphan.is_hidden):
        return False
    if maker != "lives":
        if not end_run(run_dir) or not _is_over(run_dir, is_hidden=orphan.is_hidden):
            return False
        undo_lost(run_dir)
    with writing(engine) as connection:
        queries.end_leases(connection, orphan.attempt_id, node=orphan.node)
    if orphan.node is None:
        run_dir.remove_node_environment()
    if run_dir.path.name.startswith(NODE_SPEED):
        with contextlib.suppress(OSError):
            run_dir.path.rmdir()
    return True


def _goes_on(run_dir: RunDir, *, is_hidden: bool) -> bool:
    """Whether a worker that lives has still to end a run, or to put back what that has moved."""
    if processes_of(run_dir.path) or may_be_present(run_dir, is_hidden=is_hidden):
        return True
    return not run_dir.undone.exists() and bool(told_here(run_dir, Moved))


def _is_closed(run_dir: RunDir) -> bool:
    """Whether a run is another user's: only their worker sees whether it is over, until the machine restarts."""
    try:
        run_dir.mark.stat()  # not `exists`: from Python 3.14 on, that says that what is closed is not there
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _is_over(run_dir: RunDir, *, is_hidden: bool) -> bool:
    """Whether no process of a run is left, once those that are seen from here are ended.

    A worker that somebody stopped while it started the run is none of them, whatever it has open.
    """
    if not may_be_present(run_dir, is_hidden=is_hidden):
        return True
    return not is_hidden and only_stopped_starters(run_dir.stdout)
