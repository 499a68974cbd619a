"""Locks of devices between databases, and what others may have put in their place."""

import os
from pathlib import Path

import pytest

from dsopt.errors import DsoptError
from dsopt.launch.device_locks import DeviceLocks, reserve, without_reserved
from dsopt.launch.devices import DevicePool
from dsopt.launch.trainings import Mark


def test_what_another_user_has_put_there_keeps_nobody_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSOPT_DEVICE_LOCKS")
    monkeypatch.setattr("dsopt.launch.device_locks.machine_folder", lambda: tmp_path)
    pool = DevicePool(kind="cpu", indices=(0, 1))
    files = reserve(pool, "here", Mark(script="t.py"))
    assert without_reserved(pool).indices == ()
    tmp_path.chmod(0o777)  # others can write there
    assert without_reserved(pool).indices == (0, 1)
    locks = DeviceLocks("mine", "mine")
    locks.hold(pool)
    assert not list(tmp_path.glob("cpu-?"))
    for descriptor in files:
        os.close(descriptor)


def test_locks_belong_to_the_database_that_is_there_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that was put in the place of an SQLite file is the database of all who name that file."""
    monkeypatch.setenv("DSOPT_DEVICE_LOCKS", str(tmp_path / "locks"))
    pool = DevicePool(kind="cpu", indices=(0, 1))
    first, of_the_copy, of_the_former = (DeviceLocks(name, "file") for name in ("former", "copy", "former"))
    first.hold(pool)
    with pytest.raises(DsoptError, match="CPU slot 0 of this machine is in use by workers on another database"):
        of_the_copy.hold(pool)
    first.belong_to("copy")
    of_the_copy.hold(pool)
    with pytest.raises(DsoptError, match="in use by workers on another database"):
        of_the_former.hold(pool)
    first.close()
    of_the_copy.close()
    of_the_former.hold(pool)
    of_the_former.close()
