"""Locks of devices between databases, and what others may have put in their place."""

import os
from pathlib import Path

import pytest

from dsopt.launch.device_locks import DeviceLocks, reserve, without_reserved
from dsopt.launch.devices import DevicePool


def test_what_another_user_has_put_there_keeps_nobody_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSOPT_DEVICE_LOCKS")
    monkeypatch.setattr("dsopt.launch.device_locks.machine_folder", lambda: tmp_path)
    pool = DevicePool(kind="cpu", indices=(0, 1))
    files = reserve(pool, "here")
    assert without_reserved(pool).indices == ()
    tmp_path.chmod(0o777)  # others can write there
    assert without_reserved(pool).indices == (0, 1)
    locks = DeviceLocks("mine", "mine")
    locks.hold(pool)
    assert not list(tmp_path.glob("cpu-?"))
    for descriptor in files:
        os.close(descriptor)
