"""Workers of one machine on two databases: leases keep nobody off the other's devices, so the second is refused."""

import errno
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from dsopt.errors import DsoptError
from dsopt.launch import device_locks
from dsopt.launch.device_locks import DeviceLocks
from dsopt.launch.devices import DevicePool
from dsopt.store.identity import identity_of
from dsopt.store.studies import Store
from tests.conftest import Dsopt
from tests.studies import write_study
from tests.worker.test_protocol_runs import wait_for_a_run


def test_a_worker_on_another_database_is_refused_while_the_first_one_lives(dsopt: Dsopt) -> None:
    other = Dsopt(dsopt.cwd / "other", f"sqlite:///{dsopt.cwd / 'other.db'}")
    for each in (dsopt, other):
        each.cwd.mkdir(exist_ok=True)
        each.environment["SIMULATED_SECONDS"] = "60" if each is dsopt else "0.1"
        write_study(each.cwd)
        each("study", "create", "study.yaml")
    first = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(dsopt.cwd)
    told = other("worker", "simulated", "--devices", "cpu:2", code=1)
    assert "CPU slot 0 of this machine is in use by workers on another database (sqlite:///" in told
    assert other.json("study", "show", "simulated")["runs"] == []
    first.kill()
    first.communicate()
    other("worker", "simulated", "--devices", "cpu:2")


def test_workers_share_what_they_lock_on_one_database_and_lock_only_their_own_devices() -> None:
    with_uuid = DevicePool(kind="gpu", indices=(0, 1), uuids={0: "GPU-a", 1: "GPU-b"})
    renumbered = DevicePool(kind="gpu", indices=(0,), uuids={0: "GPU-b"})
    first, second, other = DeviceLocks("one", "one.db"), DeviceLocks("one", "same.db"), DeviceLocks("two", "two.db")
    first.hold(with_uuid)
    second.hold(with_uuid)
    other.hold(DevicePool(kind="gpu", indices=(0,), uuids={0: "GPU-c"}))
    first.close()
    with pytest.raises(DsoptError, match=r"GPU 0 .* on another database \(one.db\)"):
        other.hold(renumbered)
    second.close()
    other.hold(renumbered)
    with pytest.raises(DsoptError, match=r"\(two.db\)"):
        second.hold(with_uuid)
    other.close()


def test_where_locks_cannot_be_written_the_database_alone_keeps_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DSOPT_DEVICE_LOCKS", str(tmp_path / "file" / "locks"))
    for database in ("one", "two"):
        DeviceLocks(database, database).hold(DevicePool(kind="cpu", indices=(0,)))


def test_on_a_full_disk_workers_share_what_nobody_can_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock without a name kept everybody out, also the worker that had it."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(device_locks.os, "pwrite", full)
    pool = DevicePool(kind="cpu", indices=(0,))
    locks = [DeviceLocks("one", "one"), DeviceLocks("one", "one"), DeviceLocks("two", "two")]
    for each in locks:
        each.hold(pool)
    for each in locks:
        each.close()


def test_a_database_is_the_same_however_it_is_reached(storage_url: str, tmp_path: Path) -> None:
    first = Store.open(storage_url, make=True)
    same = Store.open(storage_url.replace("?", "?application_name=x&") if "?" in storage_url else storage_url)
    assert identity_of(first.engine) == identity_of(same.engine)
    another = Store.open(f"sqlite:///{tmp_path / 'another.db'}", make=True)
    assert identity_of(another.engine) != identity_of(first.engine)
    another.close()
    first.close()
    same.close()


def test_a_file_in_the_place_of_the_former_is_another_database(sqlite_url: str, tmp_path: Path) -> None:
    store, path = Store.open(sqlite_url, make=True), Path(sqlite_url.removeprefix("sqlite:///"))
    former = store.identity
    path.rename(tmp_path / "elsewhere.db")
    with pytest.raises(sa.exc.OperationalError, match="unable to open database file"):
        _ = store.identity
    shutil.copy(tmp_path / "elsewhere.db", path)
    assert store.identity not in (former, "")
    store.close()
