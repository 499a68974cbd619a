"""A worker's ledger on a study, for tests: tasks, attempts and outcomes as they come in runs."""

from pathlib import Path

from optuna.trial import FrozenTrial, TrialState, create_trial

from dsopt.experiment.measure import measure
from dsopt.experiment.outcome import Measured
from dsopt.launch.devices import DevicePool
from dsopt.protocol.events import Engine
from dsopt.store.attempts import Attempt, NewTask, Task
from dsopt.store.leases import Request
from dsopt.store.ledger import Ledger
from dsopt.store.orphans import find_orphans, sweep
from dsopt.store.queries import other_workers
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.workers import bury, find_dead, register
from dsopt.study.part import Part
from dsopt.study.spec import StudySpec

POOL = DevicePool(kind="cpu", indices=(0, 1, 2))


def spec(name: str = "s", **keys: object) -> StudySpec:
    command = "deepspeed --num_gpus 2 t.py --deepspeed_config c.json"
    return StudySpec.model_validate({"name": name, "command": command, "cwd": "/", "ds_config": {}, **keys})


def ledger_of(store: Store) -> Ledger:
    """That of a worker which registers now."""
    return Ledger(store, register(store.engine))


def new_task(name: str = "z0_gas1_tmbspg1", part: str = "z0", **attrs: object) -> NewTask:
    frozen = create_trial(state=TrialState.RUNNING, user_attrs={"candidate": name, **attrs})
    return NewTask(part=Part(part), name=name, round=0, frozen=frozen)


def ended_task(name: str = "z0_gas1_tmbspg1") -> NewTask:
    frozen: FrozenTrial = create_trial(state=TrialState.PRUNED, user_attrs={"candidate": name})
    return NewTask(part=Part("z0"), name=name, round=0, frozen=frozen)


def begin(
    ledger: Ledger, study: StoredStudy, task: Task | NewTask, store: Store, run_dir: str = "/tmp/r", count: int = 1
) -> tuple[Task, Attempt]:
    """Begins an attempt, decided on what is known now."""
    decisions = store.now(study).decisions if isinstance(task, NewTask) else None
    return ledger.begin(study, task, Path(run_dir), Request(pool=POOL, count=count), decisions=decisions)


def measured(slowness: float = 1.0) -> Measured:
    engine = Engine(
        rank=0, world_size=2, num_params=10, trainable_params=10, device="d", device_memory_bytes=100, zero_stage=0,
        micro_batch=1, gas=1, dtype="fp16",
    )  # fmt: skip
    times = tuple(slowness * seconds for seconds in (0.4, 0.2, 0.1, 0.11, 0.1, 0.11))
    measurement = measure(times, 2, 0.02)
    assert measurement is not None
    return Measured(
        measurement=measurement, step_seconds=times, engine=engine, peak_memory_bytes=50, activation_bytes=5,
        flops_per_step=None, pass_seconds={"forward": (0.1,) * 6}, rows=1, peak_allocated_bytes=40,
    )  # fmt: skip


def bury_now(store: Store, ledger: Ledger) -> int:
    """Buries whoever is dead, and returns how many."""
    with store.engine.connect() as connection:
        dead = find_dead(other_workers(connection, ledger.me.id), ledger.me)
    return sum(bury(store.engine, worker) for worker in dead)


def sweep_now(store: Store, ledger: Ledger, pool: DevicePool = POOL) -> int:
    """Frees what the dead held here, and returns of how many attempts."""
    with store.engine.connect() as connection:
        orphans = find_orphans(connection, ledger.me, pool)
    sweep(store.engine, orphans)
    return len(orphans)
