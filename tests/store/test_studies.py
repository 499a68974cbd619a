"""Studies and attempts in both databases: what the database itself makes sure of."""

import optuna
import pytest
import sqlalchemy as sa

from dsopt.errors import DsoptError
from dsopt.experiment.measure import measure
from dsopt.experiment.outcome import Failed, Infeasible, Measured, Outcome, Slow
from dsopt.launch.devices import DevicePool
from dsopt.protocol.events import Engine
from dsopt.search.history import observe
from dsopt.store import queries, trials
from dsopt.store.attempts import Task, WorkerRecord, bury_the_dead, last_attempt
from dsopt.store.studies import Store
from dsopt.study.part import REFERENCE, Part
from dsopt.study.spec import StudySpec

POOL = DevicePool(kind="cpu", indices=(0, 1, 2))


def spec(name: str = "s", **keys: object) -> StudySpec:
    command = "deepspeed --num_gpus 2 t.py --deepspeed_config c.json"
    return StudySpec.model_validate({"name": name, "command": command, "cwd": "/", "ds_config": {}, **keys})


@pytest.fixture
def store(storage_url: str):
    opened = Store.open(storage_url, make=True)
    yield opened
    opened.close()


def task(trial: int = 0, name: str = "z0_gas1_tmbspg1") -> Task:
    return Task(part=Part("z0"), trial=trial, name=name, round=0)


def test_creating_the_same_study_again_changes_nothing(store: Store) -> None:
    first, is_new = store.create(spec())
    again, is_new_again = store.create(spec())
    assert (is_new, is_new_again) == (True, False)
    assert again == first
    names = optuna.get_all_study_names(store.optuna_storage)
    assert sorted(names) == ["s/reference", "s/z0", "s/z1", "s/z2", "s/z3"]


def test_a_different_spec_under_a_used_name_shows_the_difference(store: Store) -> None:
    store.create(spec())
    with pytest.raises(DsoptError) as caught:
        store.create(spec(timeout_seconds=5))
    assert '+  "timeout_seconds": 5.0' in str(caught.value)
    assert "dsopt study delete s" in str(caught.value)
    assert store.get("s").spec == spec()


def test_a_name_that_is_not_there_suggests_the_nearest(store: Store) -> None:
    with pytest.raises(DsoptError, match="There is none yet"):
        store.get("tiny")
    store.create(spec("tiny-gpt"))
    with pytest.raises(DsoptError, match="Did you mean 'tiny-gpt'"):
        store.get("tiny-gtp")


def test_overwrite_starts_a_finished_study_anew(store: Store) -> None:
    study, _ = store.create(spec())
    store.advance(study, "finished")
    again, is_new = store.create(spec(autotuning={"overwrite": True}))
    assert is_new
    assert again.state == "created"
    assert not store.create(spec(autotuning={"overwrite": True}))[1]  # not finished: it goes on


def test_stop_and_resume(store: Store) -> None:
    study, _ = store.create(spec())
    assert not store.resume(study)
    assert store.stop(study, "enough")
    assert not store.stop(study, "again")
    assert store.get("s").note == "enough"
    store.advance(study, "searching")  # a worker that has not noticed yet
    assert store.state(study) == "stopped"
    assert store.resume(store.get("s"))
    assert store.state(study) == "created"


def test_delete_leaves_nothing_of_a_study_and_all_of_others(store: Store) -> None:
    study, _ = store.create(spec())
    store.create(spec("other"))
    record = WorkerRecord(store)
    record.claim(study, task())
    attempt = record.begin(study, task(), "/tmp/r", POOL, 2)
    assert attempt is not None
    with pytest.raises(DsoptError, match="is running"):
        store.delete(store.get("s"))
    record.finish(attempt, Failed(reason="crash", message="x"), "throughput")
    store.delete(store.get("s"))
    assert [s.name for s in store.headers()] == ["other"]
    assert all(name.startswith("other/") for name in optuna.get_all_study_names(store.optuna_storage))
    with store.engine.connect() as connection:
        for table in ("attempts", "claims", "leases", "measurements"):
            assert connection.execute(sa.text(f"SELECT count(*) FROM dsopt_{table}")).scalar_one() == 0


def test_a_candidate_is_given_to_one_worker(store: Store) -> None:
    study, _ = store.create(spec())
    one, two = WorkerRecord(store), WorkerRecord(store)
    assert one.claim(study, task(trial=0))
    assert not two.claim(study, task(trial=1))
    one.give_back(study, task(trial=0))
    assert two.claim(study, task(trial=1))


def test_a_device_is_leased_to_one_attempt(store: Store) -> None:
    study, _ = store.create(spec())
    record = WorkerRecord(store)
    first = record.begin(study, task(0), "/tmp/a", POOL, 2)
    assert first is not None
    assert first.devices.indices == (0, 1)
    assert record.begin(study, task(1), "/tmp/b", POOL, 2) is None
    small = record.begin(study, task(1), "/tmp/b", POOL, 1)
    assert small is not None
    assert small.devices.indices == (2,)
    assert small.port != first.port
    record.finish(first, Failed(reason="crash", message="x"), "throughput")
    assert record.begin(study, task(2), "/tmp/c", POOL, 2) is not None


def test_a_finished_attempt_never_changes(store: Store) -> None:
    study, _ = store.create(spec())
    record = WorkerRecord(store)
    attempt = record.begin(study, task(), "/tmp/a", POOL, 1)
    assert attempt is not None
    assert record.finish(attempt, Failed(reason="crash", message="first"), "throughput")
    assert not record.finish(attempt, Failed(reason="timeout", message="second"), "throughput")
    with pytest.raises(sa.exc.DBAPIError, match="a finished attempt never changes"), store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE dsopt_attempts SET state = 'running'"))
    [row] = store.runs(study)
    assert (row["state"], row["message"]) == ("failed", "first")


def measured() -> Measured:
    engine = Engine(
        rank=0, world_size=2, num_params=10, trainable_params=10, device="d", device_memory_bytes=100, zero_stage=0,
        micro_batch=1, gas=1, dtype="fp16",
    )  # fmt: skip
    times = (0.4, 0.2, 0.1, 0.11, 0.1, 0.11)
    measurement = measure(times, 2, 0.02)
    assert measurement is not None
    return Measured(
        measurement=measurement, step_seconds=times, engine=engine, peak_memory_bytes=50, activation_bytes=5,
        flops_per_step=None, pass_seconds={"forward": (0.1,) * 6}, rows=1, peak_allocated_bytes=40,
    )  # fmt: skip


@pytest.mark.parametrize(
    "outcome",
    [
        measured(),
        Slow(so_far=measured(), best=30.0, message="at most 20 samples/s"),
        Infeasible(reason="oom", message="no memory left"),
        Failed(reason="timeout", message="too long"),
    ],
    ids=lambda outcome: outcome.state,
)
def test_an_outcome_outlives_the_worker_that_recorded_it(store: Store, outcome: Outcome) -> None:
    study, _ = store.create(spec())
    record = WorkerRecord(store)
    attempt = record.begin(study, task(), "/tmp/a", POOL, 1)
    assert attempt is not None
    assert record.finish(attempt, outcome, "throughput")
    row = last_attempt(store, study, task())
    assert row is not None
    assert trials.recorded_outcome(row) == outcome
    with pytest.raises(sa.exc.DBAPIError, match="a finished attempt never changes"), store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE dsopt_attempts SET state = 'running'"))


@pytest.mark.parametrize("state", ["measured", "slow", "infeasible", "failed"])
def test_optuna_is_told_what_the_search_reads(store: Store, state: str) -> None:
    outcome: Outcome = {
        "measured": measured(),
        "slow": Slow(so_far=measured(), best=30.0, message="at most 20 samples/s"),
        "infeasible": Infeasible(reason="oom", message="no memory left"),
        "failed": Failed(reason="timeout", message="too long"),
    }[state]
    study, _ = store.create(spec())
    trial = store.optuna_study(study, "z0").ask()
    trials.tell(trial, outcome, "throughput", run_seconds=12.5)
    told = store.optuna_study(study, "z0").get_trials()
    [observed] = observe(told, {trial.number}, REFERENCE)
    assert (observed.state, observed.seconds) == (state, 12.5)
    throughput = measured().metric("throughput")
    assert observed.value == (throughput if state == "measured" else None)
    assert observed.value_so_far == (throughput if state == "slow" else None)
    assert (observed.half_width is not None) == (observed.facts is not None) == (state in ("measured", "slow"))
    assert observed.facts is None or (observed.facts.peak_memory_bytes, observed.facts.peak_allocated_bytes) == (50, 40)
    assert bool(told[0].constraints) == (state == "infeasible")
    assert observed.message == getattr(outcome, "message", "")


@pytest.mark.parametrize("column", ["dsopt_studies", "dsopt_attempts"])
def test_only_known_states_are_kept(store: Store, column: str) -> None:
    study, _ = store.create(spec())
    WorkerRecord(store).begin(study, task(), "/tmp/a", POOL, 1)
    with pytest.raises(sa.exc.IntegrityError), store.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {column} SET state = 'whatever'"))


def test_a_worker_whose_process_is_gone_is_buried_and_its_trial_adopted(store: Store) -> None:
    study, _ = store.create(spec())
    dead, me = WorkerRecord(store), WorkerRecord(store)
    dead.claim(study, task())
    dead.begin(study, task(), "/tmp/a", POOL, 2)
    assert bury_the_dead(store, me) == 0  # its process, this one, lives
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE dsopt_workers SET process_started = 1 WHERE id = {dead.id}"))
    assert bury_the_dead(store, me) == 1
    assert not dead.beat()
    [row] = store.runs(study)
    assert (row["state"], row["reason"]) == ("failed", "lost")
    assert me.adopt(study, {("z0", 0)}) == task()
    assert me.adopt(study, {("z0", 0)}) is None
    with store.engine.connect() as connection:
        assert queries.leased_devices(connection, me.node) == set()


def test_a_silent_worker_of_another_machine_is_given_up_on_the_databases_clock(store: Store) -> None:
    store.create(spec())
    far, me = WorkerRecord(store), WorkerRecord(store)
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE dsopt_workers SET host = 'elsewhere' WHERE id = {far.id}"))
    bury_the_dead(store, me)
    assert far.beat()
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE dsopt_workers SET heartbeat_at = heartbeat_at - 61 WHERE id = {far.id}"))
    bury_the_dead(store, me)
    assert not far.beat()


def test_a_study_that_cannot_be_read_is_listed_deleted_and_in_nobodys_way(store: Store) -> None:
    store.create(spec("good"))
    store.create(spec("broken"))
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE dsopt_studies SET spec = '{}' WHERE name = 'broken'"))
    assert [header.name for header in store.headers()] == ["good", "broken"]
    with pytest.raises(DsoptError, match="study 'broken' was made by another version"):
        store.get("broken")
    assert store.get("good").state == "created"
    store.delete(store.header("broken"))
    assert [header.name for header in store.headers()] == ["good"]
    assert not [n for n in optuna.get_all_study_names(store.optuna_storage) if n.startswith("broken/")]


def test_an_earlier_study_to_begin_with_has_to_be_there(store: Store) -> None:
    later = spec("later", warm_start=["s"])
    with pytest.raises(DsoptError, match=r"study 'later': warm_start: there is no study 's'"):
        store.create(later)
    store.create(spec())
    assert store.create(later)[1]
