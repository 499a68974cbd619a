"""Which devices a training takes, and for whom it waits there."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from dsopt.errors import DsoptError
from dsopt.experiment.outcome import Cancelled
from dsopt.launch import devices
from dsopt.launch.devices import DevicePool
from dsopt.launch.gpus import Gpu, User
from dsopt.launch.strangers import Strangers
from dsopt.launch.undone import undo
from dsopt.protocol.run_dir import RunDir
from dsopt.store.leases import Request
from dsopt.store.studies import Store
from dsopt.study.command import LaunchCommand
from dsopt.worker import training_devices
from dsopt.worker.training_devices import Waiting, devices_of
from tests.probe.rank import run, write_old
from tests.store.ledger import ledger_of, new_task, spec
from tests.studies import until

SLOT = DevicePool(kind="cpu", indices=(0,))
# a worker that begins a run and waits to be killed
WORKS = """
import sys
from pathlib import Path
from dsopt.launch.maker import this_process
from dsopt.protocol.run_dir import RunDir
from dsopt.store.leases import Request
from dsopt.store.studies import Store
from tests.store.ledger import POOL, ledger_of, new_task
store = Store.open(sys.argv[1])
study, ledger = store.get("s"), ledger_of(store)
run_dir = RunDir.create(Path(sys.argv[2]), "r", store.identity, this_process())
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


def nobody(_: str) -> None:
    """Is told nothing."""


@pytest.fixture
def worker(store: Store, storage_url: str, tmp_path: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """One that runs something."""
    write_old(tmp_path / "work" / "model.pt")
    time.sleep(0.05)
    store.create(spec(cwd=str(tmp_path)))
    command = [sys.executable, "-c", WORKS, storage_url, str(tmp_path / "results")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        yield process
        process.kill()


@pytest.mark.parametrize("what", ["finished", "deleted"])
def test_what_a_killed_worker_of_a_closed_study_held_is_freed_and_undone(
    store: Store, worker: "subprocess.Popen[bytes]", tmp_path: Path, what: str
) -> None:
    """No worker looks after it: none works on that study any more. A rank of its lives."""
    run_dir = RunDir(tmp_path / "results" / "r")
    run(run_dir, tmp_path / "work", "os.remove('model.pt')")
    environment = {**os.environ, "DSOPT_RUN_DIR": str(run_dir.path)}
    with contextlib.ExitStack() as ends:
        rank = ends.enter_context(subprocess.Popen(["sleep", "600"], env=environment))
        ends.callback(rank.kill)
        waiting = Waiting(store, SLOT, nobody)
        assert waiting.for_devices() == "runs of dsopt on 1 CPU slot have not ended ('dsopt workers' shows them)"
        why = waiting.for_files(tmp_path / "results", tmp_path)
        assert why == f"the run in {run_dir.path} goes on, or another one uses what it has left"
        worker.kill()
        worker.wait()
        if what == "deleted":
            store.stop(store.get("s"), "enough")
            store.delete(store.get("s"))
        else:
            with store.engine.begin() as connection:
                connection.execute(sa.text("UPDATE dsopt_studies SET state = 'finished'"))
        until(lambda: waiting.for_files(tmp_path / "results", tmp_path) is None)
        assert (tmp_path / "work" / "model.pt").read_text() == "the user's"
        assert rank.wait(timeout=10) == -signal.SIGKILL
    assert waiting.for_devices() is None


def test_what_a_killed_worker_of_another_study_has_left_is_undone(
    store: Store, worker: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    """No worker need come by again that looks after that study."""
    run_dir = RunDir(tmp_path / "results" / "r")
    run(run_dir, tmp_path / "work", "os.remove('model.pt')")
    waiting = Waiting(store, SLOT, nobody)
    why = f"the run in {run_dir.path} goes on, and saves in this folder"
    assert waiting.for_files(tmp_path / "results of the other", tmp_path / "work") == why
    worker.kill()
    worker.wait()
    until(lambda: waiting.for_files(tmp_path / "results of the other", tmp_path / "work") is None)
    assert (tmp_path / "work" / "model.pt").read_text() == "the user's"


def test_after_an_outage_nobody_is_taken_for_dead_at_once(
    store: Store, worker: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers could not beat, either. This one has not for a minute, and lives."""
    waiting = Waiting(store, SLOT, nobody)
    assert waiting.for_devices() is not None
    with monkeypatch.context() as patch:
        patch.setattr(training_devices, "count_free_after_all", lambda *_: fail_as_away())
        assert "cannot be reached" in (waiting.for_devices() or "")
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE dsopt_workers SET heartbeat_at = heartbeat_at - 120"))
    monkeypatch.setattr("dsopt.store.beats.SILENT_SECONDS", 0.0)
    monkeypatch.setattr("dsopt.store.workers.is_gone", lambda *_: False)
    assert waiting.for_devices() is not None
    assert count_workers(store) == 1
    monkeypatch.setattr(waiting, "_may_bury_at", 0.0)
    waiting.for_devices()
    assert count_workers(store) == 0


def fail_as_away() -> int:
    raise sa.exc.OperationalError("SELECT 1", {}, Exception("the database system is starting up"))


def count_workers(store: Store) -> int:
    with store.engine.connect() as connection:
        return int(connection.execute(sa.text("SELECT count(*) FROM dsopt_workers")).scalar_one())


def test_a_training_waits_for_programs_of_others_but_on_gpus_that_were_named(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """Else what was tuned on a free GPU would train on one in use, and take the memory of who is there."""
    user = User(pid=os.getppid(), ticks=1.0, text="process 7 (python, user anna)")
    gpus = [Gpu(index=0, uuid="GPU-a", users=(user,)), Gpu(index=1, uuid="GPU-b")]
    for module in ("dsopt.launch.strangers", "dsopt.launch.devices", "dsopt.worker.training_devices"):
        monkeypatch.setattr(f"{module}.installed_gpus", lambda: gpus)
    for name in ("CUDA_VISIBLE_DEVICES", "DS_ACCELERATOR"):
        monkeypatch.delenv(name, raising=False)
    command = LaunchCommand.parse("deepspeed --num_gpus 2 t.py", "test")

    def why(devices: str | None) -> str | None:
        return Waiting(store, devices_of(command, devices), nobody).for_devices()

    said = "GPU 0 is used by process 7 (python, user anna) (with --devices 0,1, it would train beside that)"
    assert why(None) == why("1") == why("cpu:2") == said
    assert why("0") is None
    with pytest.raises(DsoptError, match="does not name a device"):
        why("O")


def test_a_process_is_no_stranger_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a notebook that has used the GPU, and then calls `study.train()`."""
    user = User(pid=os.getpid(), ticks=1.0, text="process 7")
    monkeypatch.setattr("dsopt.launch.strangers.installed_gpus", lambda: [Gpu(index=0, users=(user,))])
    assert not Strangers(DevicePool(kind="gpu", indices=(0,))).on([0])


def test_a_training_waits_for_runs_on_its_other_nodes_and_for_such_as_save_in_its_folder(
    store: Store, tmp_path: Path
) -> None:
    """Another study's, wherever they run."""
    working, results = tmp_path / "work", tmp_path / "other" / "results"
    working.mkdir()
    write_old(working / "model.pt")
    time.sleep(0.05)
    store.create(spec(cwd=str(tmp_path)))
    study, ledger, run_dir = store.get("s"), ledger_of(store), RunDir.create(results, "r")
    request = Request(pool=DevicePool(kind="cpu", indices=()), count=0, hosts={"worker-2": (3,)})
    task, attempt = ledger.begin(study, new_task(), run_dir.path, request, decisions=store.now(study).decisions)
    waiting = Waiting(store, SLOT, nobody, {"worker-1": (3,), "worker-2": (2, 3)})
    assert waiting.for_files(tmp_path / "mine", working) is None
    run(run_dir, working, "os.remove('model.pt')")
    why = f"the run in {run_dir.path} goes on, and saves in this folder"
    assert waiting.for_files(tmp_path / "mine", working) == why
    assert waiting.for_files(tmp_path / "mine", tmp_path / "elsewhere") is None
    assert waiting.for_devices() == "runs of dsopt on node 'worker-2' have not ended ('dsopt workers' shows them)"
    assert Waiting(store, SLOT, nobody, {"worker-2": (2,)}).for_devices() is None
    undo(run_dir)
    ledger.end(study, task, attempt, Cancelled(), {}, is_told=True)
    assert waiting.for_files(tmp_path / "mine", working) is None
    assert waiting.for_devices() is None
