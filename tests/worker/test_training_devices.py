"""Which devices a training takes, and for whom it waits there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from dsopt.launch import devices
from dsopt.launch.devices import DevicePool
from dsopt.launch.gpus import Gpu, User
from dsopt.store.studies import Store
from dsopt.study.command import LaunchCommand
from dsopt.worker import training_devices
from dsopt.worker.training_devices import Room, devices_of
from tests.store.ledger import spec
from tests.worker.test_faults import until

SLOT = DevicePool(kind="cpu", indices=(0,))
# a worker that begins a run and waits to be killed
WORKS = """
import sys
from pathlib import Path
from dsopt.protocol.run_dir import RunDir
from dsopt.store.leases import Request
from dsopt.store.studies import Store
from tests.store.ledger import POOL, ledger_of, new_task
store = Store.open(sys.argv[1])
study, ledger = store.get("s"), ledger_of(store)
run_dir = RunDir.create(Path(sys.argv[2]), "r", "d", "m")
request = Request(pool=POOL, count=1)
ledger.begin(study, new_task(), run_dir.path, request, decisions=store.now(study).decisions)
print("begun", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("command", "visible", "indices"),
    [
        ("torchrun --nproc_per_node 1 t.py", None, (0,)),
        ("torchrun --nproc_per_node 1 t.py", "3,2", (3,)),
        ("CUDA_VISIBLE_DEVICES=3,2 torchrun --nproc_per_node 1 t.py", None, (3,)),
        ("accelerate launch --gpu_ids 3,2 --num_processes 1 t.py", None, (3,)),
        ("deepspeed t.py", None, (0, 1, 2, 3)),
        ("CUDA_VISIBLE_DEVICES=2,3 deepspeed t.py", None, (2, 3)),
        ("deepspeed --num_gpus 2 t.py", "2,3", (0, 1)),  # the launcher says that it ignores them
        ("deepspeed --include localhost:1,3 t.py", "0", (1, 3)),
        ("deepspeed --exclude localhost:0 t.py", None, (1, 2, 3)),
    ],
)
def test_the_gpus_that_a_training_takes_are_kept(
    monkeypatch: pytest.MonkeyPatch, command: str, visible: str | None, indices: tuple[int, ...]
) -> None:
    installed = [Gpu(index=index, uuid=f"GPU-{index}") for index in range(4)]
    monkeypatch.setattr(training_devices, "installed_gpus", lambda: installed)
    monkeypatch.setattr(devices, "installed_gpus", lambda: installed)
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices_of(LaunchCommand.parse(command, "test")).indices == indices


@pytest.mark.parametrize("what", ["finished", "deleted"])
def test_what_a_killed_worker_of_a_closed_study_held_is_free(storage_url: str, tmp_path: Path, what: str) -> None:
    """No worker looks after it: none works on that study any more."""
    store = Store.open(storage_url, make=True)
    study, _ = store.create(spec(cwd=str(tmp_path)))
    room = Room(store, SLOT, ())
    assert room.why_not_yet() is None
    command = [sys.executable, "-c", WORKS, storage_url, str(tmp_path / "results")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"begun\n"
        assert room.why_not_yet() == "runs of dsopt on 1 CPU slot have not ended ('dsopt workers' shows them)"
        worker.kill()
    if what == "deleted":
        store.stop(study, "enough")
        store.delete(store.get("s"))
    else:
        with store.engine.begin() as connection:
            connection.execute(sa.text("UPDATE dsopt_studies SET state = 'finished'"))
    until(lambda: room.why_not_yet() is None)
    store.close()


def test_a_training_waits_for_programs_of_others_but_on_gpus_that_were_named(
    monkeypatch: pytest.MonkeyPatch, storage_url: str
) -> None:
    """Else what was tuned on a free GPU would train on one in use, and take the memory of who is there."""
    user = User(pid=os.getpid(), ticks=1.0, text="process 7 (python, user anna)")
    monkeypatch.setattr("dsopt.launch.strangers.installed_gpus", lambda: [Gpu(index=0, users=(user,)), Gpu(index=1)])
    store = Store.open(storage_url, make=True)
    pool = DevicePool(kind="gpu", indices=(0, 1), uuids={0: "GPU-a", 1: "GPU-b"})
    assert Room(store, pool, ()).why_not_yet() == "GPU 0 is used by process 7 (python, user anna)"
    assert Room(store, pool, (1,)).why_not_yet() == "GPU 0 is used by process 7 (python, user anna)"
    assert Room(store, pool, (0,)).why_not_yet() is None
    assert Room(store, pool.without([0]), ()).why_not_yet() is None
    store.close()
