"""What a worker writes: claims, attempts, leases and outcomes, each as a whole, on both databases."""

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import ANY

import optuna
import pytest
import sqlalchemy as sa
from optuna.trial import TrialState, create_trial

from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Outcome, Slow
from dsopt.launch.processes import start_ticks
from dsopt.search.observing import observe
from dsopt.store import claims, optuna_rows, queries, trials
from dsopt.store.lease_queries import leases_on
from dsopt.store.leases import Request
from dsopt.store.reading import kept_trials
from dsopt.store.studies import Store
from dsopt.store.transactions import AttemptOver, DevicesTaken, Fenced, StudyChanged, StudyGone, WorkerGone
from dsopt.store.workers import beat, leave
from dsopt.study.part import Part
from tests.store.ledger import POOL, begin, bury_now, ended_task, ledger_of, measured, new_task, spec, sweep_now

LOST = {"run_dir": "/tmp/r", "node": "there", "devices": None}
CRASH = Failed(reason="crash", message="x")


def test_a_candidate_is_given_to_one_worker(store: Store) -> None:
    study, _ = store.create(spec())
    one, two = ledger_of(store), ledger_of(store)
    decisions = store.now(study).decisions
    claimed, attempt = begin(one, study, new_task(), store)
    with pytest.raises(StudyChanged):
        two.begin(study, new_task(), Path("/tmp/r"), Request(pool=POOL, count=1), decisions=decisions)  # too late
    with pytest.raises(StudyChanged):
        begin(two, study, new_task(), store)
    one.end(study, claimed, attempt, Cancelled(), {}, is_told=True)
    assert kept_trials(store, study) == []
    begin(two, study, new_task(), store)


def test_a_claim_that_fails_leaves_no_trial(store: Store) -> None:
    study, _ = store.create(spec())
    ledger = ledger_of(store)
    begin(ledger, study, new_task(), store, count=3)
    with pytest.raises(DevicesTaken):
        begin(ledger, study, new_task("other"), store)
    assert len(store.optuna_study(study, Part("z0")).trials) == 1
    assert len(kept_trials(store, study)) == 1


def test_a_device_is_leased_to_one_attempt(store: Store) -> None:
    study, _ = store.create(spec())
    ledger = ledger_of(store)
    claimed, first = begin(ledger, study, new_task("a"), store, count=2)
    assert first.devices.indices == (0, 1)
    with pytest.raises(DevicesTaken):
        begin(ledger, study, new_task("b"), store, count=2)
    _, small = begin(ledger, study, new_task("b"), store, count=1)
    assert small.devices.indices == (2,)
    assert small.port != first.port
    ledger.end(study, claimed, first, CRASH, {}, is_told=True)
    assert begin(ledger, study, new_task("c"), store, count=2)[1].devices.indices == (0, 1)


def test_a_finished_attempt_never_changes(store: Store) -> None:
    study, _ = store.create(spec())
    ledger = ledger_of(store)
    claimed, attempt = begin(ledger, study, new_task(), store)
    ledger.end(study, claimed, attempt, Failed(reason="crash", message="first"), {}, is_told=True)
    ledger.end(study, claimed, attempt, Failed(reason="crash", message="again"), {}, is_told=True)  # an answer was lost
    with pytest.raises(AttemptOver):
        ledger.end(study, claimed, attempt, measured(), {}, is_told=True)
    with pytest.raises(sa.exc.DBAPIError, match="a finished attempt never changes"), store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE dsopt_attempts SET state = 'running'"))
    [row] = store.runs(study)
    assert (row["state"], row["message"]) == ("failed", "first")


def test_trials_stand_in_the_order_in_which_they_ended_whatever_a_nodes_clock_says(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, _ = store.create(spec())
    ledger = ledger_of(store)
    began = [begin(ledger, study, new_task(name), store, count=1) for name in "abc"]
    for (task, attempt), hour in zip(reversed(began), (3, 2, 1), strict=True):
        at = datetime(2026, 1, 1, hour)
        monkeypatch.setattr("dsopt.store.records.datetime", SimpleNamespace(now=lambda at=at: at, fromtimestamp=ANY))
        ledger.end(study, task, attempt, CRASH, {}, is_told=True)
    monkeypatch.undo()
    kept = sorted(kept_trials(store, study), key=lambda one: observe(one.trial, one.part).order)
    assert [one.name for one in kept] == ["c", "b", "a"]


OUTCOMES = [
    measured(),
    Slow(so_far=measured(), best=30.0, message="at most 20 samples/s"),
    Infeasible(reason="oom", message="no memory left"),
    Failed(reason="timeout", message="too long"),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.state)
def test_an_outcome_is_recorded_and_told_at_once(store: Store, outcome: Outcome) -> None:
    study, _ = store.create(spec())
    ledger = ledger_of(store)
    claimed, attempt = begin(ledger, study, new_task(), store)
    ledger.end(study, claimed, attempt, outcome, {"run_dir": "/tmp/r"}, is_told=True)
    [row] = store.attempts_for(study, claimed)
    assert trials.recorded_outcome(row) == outcome
    told = store.optuna_study(study, Part("z0")).get_trials()
    [kept] = kept_trials(store, study)
    observed = observe(told[0], Part("z0"))
    assert observe(kept.trial, Part("z0")) == replace(observed, order=ANY)
    assert observed.state == outcome.state
    assert observed.seconds == pytest.approx(row["finished_at"] - row["started_at"])
    throughput = measured().metric("throughput")
    assert observed.value == (throughput if outcome.state == "measured" else None)
    assert observed.value_so_far == (throughput if outcome.state == "slow" else None)
    assert (observed.half_width is not None) == (observed.facts is not None) == (outcome.state in ("measured", "slow"))
    assert observed.facts is None or (observed.facts.peak_memory_bytes, observed.facts.peak_allocated_bytes) == (50, 40)
    assert bool(told[0].constraints) == (outcome.state == "infeasible")
    assert observed.message == getattr(outcome, "message", "")
    assert told[0].user_attrs["run_dir"] == "/tmp/r"


def test_trials_are_those_that_optunas_own_functions_write(store: Store) -> None:
    """Whatever stands in Optuna's tables, Optuna reads the same from its own writing and from ours."""
    shapes = {
        "size": optuna.distributions.IntDistribution(1, 64, log=True),
        "rate": optuna.distributions.FloatDistribution(0.0, 1.0),
        "overlap": optuna.distributions.CategoricalDistribution([True, False, None, "auto"]),
    }
    params = {"size": 8, "rate": 0.25, "overlap": "auto"}
    attrs = {"candidate": "c", "round": 1, "share": 0.1, "is_sound": True, "text": "ä \u0001"}
    common = {"params": params, "distributions": shapes, "user_attrs": attrs}
    whole = [
        create_trial(state=TrialState.COMPLETE, value=1.5, **common),
        create_trial(state=TrialState.PRUNED, constraints={"fits": 1.0}, **common),
        create_trial(state=TrialState.RUNNING, **common),
    ]
    theirs = optuna.create_study(study_name="theirs", storage=store.optuna_storage)
    ours = optuna.create_study(study_name="ours", storage=store.optuna_storage)
    for trial in whole:
        theirs.add_trial(trial)
        with store.engine.begin() as connection:
            optuna_rows.add_trial(connection, "ours", trial)
    running = optuna.Trial(theirs, theirs.trials[2]._trial_id)
    running.set_user_attr("text", "changed")
    running.report(3.5, 7)
    running.set_constraint("fits", 1.0)
    theirs.tell(running, state=TrialState.PRUNED)
    with store.engine.begin() as connection:
        trial_id = optuna_rows.trial_id_of(connection, "ours", 2)
        assert trial_id is not None
        optuna_rows.report(connection, trial_id, 7, 3.5)
        optuna_rows.end_trial(connection, "ours", 2, TrialState.PRUNED, {"text": "changed"}, fits=False)
    read = [[_without_times(trial) for trial in study.get_trials()] for study in (ours, theirs)]
    assert read[0] == read[1]
    with store.engine.begin() as connection:
        optuna_rows.delete_studies(connection, ["ours"])
        left = {
            "trial_params": 9,
            "trial_intermediate_values": 1,
            "trial_user_attributes": 15,
            "trials": 3,
            "studies": 1,
        }
        for table, count in left.items():
            assert connection.execute(sa.text(f"SELECT count(*) FROM {table}")).scalar_one() == count


def _without_times(trial: optuna.trial.FrozenTrial) -> tuple[object, ...]:
    assert trial.datetime_start is not None
    return (
        trial.number, trial.state, trial.value if trial.state == TrialState.COMPLETE else None, trial.params,
        trial.distributions, trial.user_attrs, trial.constraints, trial.intermediate_values,
        trial.datetime_complete is None,
    )  # fmt: skip


@pytest.mark.parametrize("column", ["dsopt_studies", "dsopt_attempts"])
def test_only_known_states_are_kept(store: Store, column: str) -> None:
    study, _ = store.create(spec())
    begin(ledger_of(store), study, new_task(), store)
    with pytest.raises(sa.exc.IntegrityError), store.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {column} SET state = 'whatever'"))


def test_a_worker_whose_process_is_gone_is_buried_and_its_trial_adopted(store: Store) -> None:
    study, _ = store.create(spec())
    dead, me = ledger_of(store), ledger_of(store)
    claimed, _ = begin(dead, study, new_task(), store, count=2)
    assert bury_now(store, me) == 0  # its process, this one, lives
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE dsopt_workers SET process_started = 1 WHERE id = '{dead.me.id}'"))
    assert bury_now(store, me) == 1
    assert beat(store.engine, dead.me, None, None) is None
    [row] = store.runs(study)
    assert (row["state"], row["reason"]) == ("failed", "lost")
    with pytest.raises(DevicesTaken):  # whoever buries it may be far away; here, its processes have to end first
        begin(me, study, new_task("other"), store, count=2)
    assert sweep_now(store, me) == 1
    assert me.adopt(study, lambda trial: None if trial == ("z0", 0) else (0, 0)) is None
    assert me.adopt(study) == claimed
    assert me.adopt(study) is None
    with pytest.raises(AttemptOver):
        begin(ledger_of(store), study, claimed, store)
    begin(me, study, claimed, store, count=2)


def test_what_a_worker_has_is_known_after_its_answers_were_lost(store: Store) -> None:
    """It begins and adopts, the connection drops before it hears of it: the database knows."""
    study, _ = store.create(spec())
    ledger, other = ledger_of(store), ledger_of(store)
    task, attempt = begin(ledger, study, new_task(), store)
    [(known, running)] = ledger.running(study)
    assert (known, running.id, ledger.claimed(study)) == (task, attempt.id, [task])
    assert (other.running(study), other.claimed(study)) == ([], [])
    ledger.end(study, known, running, CRASH, {}, is_told=False)
    assert (ledger.running(study), ledger.claimed(study)) == ([], [task])
    ledger.leave(study, task)
    assert ledger.claimed(study) == []
    assert other.adopt(study) == task


def test_a_step_of_the_machines_clock_buries_nobody(store: Store) -> None:
    """A process is known by its start in ticks since the boot, which the clock has no part in."""
    one, two = ledger_of(store), ledger_of(store)
    with store.engine.connect() as connection:
        [row] = queries.other_workers(connection, one.me.id)
    assert row["process_started"] == start_ticks(row["pid"])
    assert row["process_started"] < 1e9  # ticks since the boot, no time of day
    assert bury_now(store, two) == 0


def test_a_run_took_what_its_worker_has_measured_when_the_databases_clock_is_set(store: Store) -> None:
    """Three hours more, and a study that weighs what runs cost finds that no further one pays."""
    study, _ = store.create(spec())
    ledger = ledger_of(store)
    claimed, attempt = begin(ledger, study, new_task(), store)
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE dsopt_attempts SET started_at = started_at - 10800"))
    ledger.end(study, claimed, attempt, measured(), {"run_seconds": 5.0}, is_told=True)
    [told] = store.optuna_study(study, Part("z0")).get_trials()
    assert observe(told, Part("z0")).seconds == 5.0


def test_attempts_stay_in_order_when_the_databases_clock_is_set_back(store: Store) -> None:
    study, _ = store.create(spec())
    ledger = ledger_of(store)
    task, first = begin(ledger, study, new_task(), store)
    an_hour_on = "UPDATE dsopt_attempts SET started_at = started_at + 3600"
    with store.engine.begin() as connection:
        connection.execute(sa.text(an_hour_on))
    died = Failed(reason="killed", message="")
    ledger.end(study, task, first, died, {}, is_told=False)
    for message in ("second", "third"):
        _, attempt = begin(ledger, study, task, store)
        ledger.end(study, task, attempt, replace(died, message=message), {}, is_told=message == "third")
    rows = store.attempts_for(study, task)
    assert [row["message"] for row in rows] == ["", "second", "third"]
    assert all(row["finished_at"] >= row["started_at"] for row in rows)


def test_a_silent_worker_of_another_machine_is_given_up_on_the_databases_clock(store: Store) -> None:
    store.create(spec())
    far, me = ledger_of(store), ledger_of(store)
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE dsopt_workers SET host = 'elsewhere' WHERE id = '{far.me.id}'"))
    assert bury_now(store, me) == 0
    with store.engine.begin() as connection:
        silent = "UPDATE dsopt_workers SET heartbeat_at = heartbeat_at - 61 WHERE id = :id"
        connection.execute(sa.text(silent), {"id": far.me.id})
    assert beat(store.engine, far.me, None, None) is not None  # it lives after all
    assert bury_now(store, me) == 0
    with store.engine.begin() as connection:
        connection.execute(sa.text(silent), {"id": far.me.id})
    assert bury_now(store, me) == 1
    assert beat(store.engine, far.me, None, None) is None


def test_devices_of_a_node_stay_leased_until_that_node_has_ended_their_processes(store: Store) -> None:
    """The study may be deleted, and its worker dead: nobody else gets the device before the processes are gone."""
    study, _ = store.create(spec())
    one, two = ledger_of(store), ledger_of(store)
    begin(one, study, new_task(), store, count=3)
    store.stop(study, "enough")
    store.delete(store.get("s"))
    other, _ = store.create(spec())
    with pytest.raises(DevicesTaken):
        begin(two, other, new_task(), store)
    assert one.me.node == socket.gethostname()
    sweep_now(store, two)
    begin(two, other, new_task(), store)


def dump(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """Everything that stands in the database, apart from heartbeats."""
    tables = sa.inspect(store.engine).get_table_names()
    with store.engine.connect() as connection:
        found = {table: connection.execute(sa.text(f"SELECT * FROM {table}")).all() for table in tables}
    found["dsopt_workers"] = []
    return {table: sorted(map(tuple, rows), key=repr) for table, rows in found.items()}


WRITES = {
    "begin a new one": lambda w, s, task, attempt, store: begin(w, s, new_task("another"), store),
    "begin again": lambda w, s, task, attempt, store: begin(w, s, task, store),
    "skip": lambda w, s, task, attempt, store: w.skip(s, ended_task("another"), decisions=store.now(s).decisions),
    "change": lambda w, s, task, attempt, store: w.change(s, version=store.now(s).version, state="searching"),
    "finish": lambda w, s, task, attempt, store: w.finish(s, version=store.now(s).version),
    "mark a part": lambda w, s, task, attempt, store: w.mark_part(s, Part("z0"), {"verdict": "closed"}),
    "report": lambda w, s, task, attempt, store: w.report(s, task, attempt, {"world_size": 2}, (3, 1.5)),
    "end": lambda w, s, task, attempt, store: w.end(s, task, attempt, measured(), {}, is_told=True),
    "cancel": lambda w, s, task, attempt, store: w.end(s, task, attempt, Cancelled(), {}, is_told=True),
    "leave": lambda w, s, task, attempt, store: w.leave(s, task),
    "give back": lambda w, s, task, attempt, store: w.give_back(s, [task]),
    "record": lambda w, s, task, attempt, store: w.end_without_a_run(s, task, CRASH, LOST),
}


def buried(store: Store, study, worker, task) -> None:
    leave(store.engine, worker.me)


def buried_and_adopted(store: Store, study, worker, task) -> None:
    leave(store.engine, worker.me)
    other = ledger_of(store)
    sweep_now(store, other)
    adopted = other.adopt(study)
    assert adopted == task
    begin(other, study, adopted, store)


def buried_adopted_and_ended(store: Store, study, worker, task) -> None:
    leave(store.engine, worker.me)
    other = ledger_of(store)
    sweep_now(store, other)
    assert other.adopt(study) == task
    _, attempt = begin(other, study, task, store)
    other.end(study, task, attempt, CRASH, {}, is_told=True)


def deleted(store: Store, study, worker, task) -> None:
    store.stop(study, "enough")
    store.delete(store.get(study.name))


def deleted_and_created_again(store: Store, study, worker, task) -> None:
    deleted(store, study, worker, task)
    again, _ = store.create(spec(timeout_seconds=5))
    other = ledger_of(store)
    sweep_now(store, other)
    begin(other, again, new_task(), store)


EVENTS = [buried, buried_and_adopted, buried_adopted_and_ended, deleted, deleted_and_created_again]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_what_comes_too_late_writes_nothing(store: Store, event) -> None:
    """A worker that was frozen meanwhile goes on with each of its writes: none of them changes a row."""
    study, _ = store.create(spec())
    worker = ledger_of(store)
    task, attempt = begin(worker, study, new_task(), store)
    event(store, study, worker, task)
    before = dump(store)
    for name, write in WRITES.items():
        with pytest.raises(Fenced) as caught:
            write(worker, study, task, attempt, store)
        assert dump(store) == before, name
        if event in (buried, buried_and_adopted) and name not in ("report",):
            assert isinstance(caught.value, WorkerGone), name
        if event is deleted and name != "report":
            assert isinstance(caught.value, StudyGone), name


PAIRS = [(one, other) for one in WRITES for other in WRITES if one <= other]


@pytest.mark.slow
def test_every_pair_of_writes_at_the_same_time_leaves_a_study_whole(store: Store) -> None:
    """Two workers write at once, each with an attempt of its own: whoever is second finds a whole study."""
    for number, (one, other) in enumerate(PAIRS):
        study, _ = store.create(spec(f"s{number}"))
        workers = [ledger_of(store) for _ in range(2)]
        held = [begin(w, study, new_task(f"c{i}"), store) for i, w in enumerate(workers)]
        together = threading.Barrier(2)

        def write(i: int, name: str, study=study, workers=workers, held=held, together=together) -> None:
            together.wait()
            with contextlib.suppress(Fenced, DevicesTaken):
                WRITES[name](workers[i], study, *held[i], store)

        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(write, i, name) for i, name in enumerate((one, other))]:
                future.result(timeout=60)
        check_whole(store, study, f"{one} / {other}")
        for worker in workers:
            leave(store.engine, worker.me)
        sweep_now(store, workers[0])


def check_whole(store: Store, study, about: str) -> None:
    """Claims and trials fit: each claim has its trial, each running trial a claim, each lease a running attempt."""
    with store.engine.connect() as connection:
        rows = claims.all_of(connection, study.id)
        leased = leases_on(connection, socket.gethostname())
    found = {part: store.optuna_study(study, part).get_trials(deepcopy=False) for part in study.parts}
    claimed = {(row["stage"], row["trial"]) for row in rows}
    assert all(number < len(found[part]) for part, number in claimed), about
    running = {(part, t.number) for part, trials_ in found.items() for t in trials_ if not t.state.is_finished()}
    assert running <= claimed, about
    assert all(t.number == i for trials_ in found.values() for i, t in enumerate(trials_)), about
    runs = {row["id"]: row for row in store.runs(study)}
    mine = [row for row in leased if row["attempt_id"] in runs]
    assert all(runs[row["attempt_id"]]["state"] == "running" for row in mine), about
    told = {row["trial"] for row in runs.values() if row["state"] == "measured"}
    complete = {t.number for t in found[Part("z0")] if t.state == TrialState.COMPLETE}
    assert complete <= told if "finish" in about else complete == told, about


@pytest.mark.parametrize("outcome, is_told", [(Cancelled(), True), (CRASH, False), (CRASH, True), (measured(), True)])
def test_what_goes_on_as_a_study_finishes_is_cancelled_and_may_end_in_any_way(
    store: Store, outcome: Outcome, is_told: bool
) -> None:
    """A proof that another worker had, or had left, stayed open for good."""
    study, _ = store.create(spec())
    one, two = ledger_of(store), ledger_of(store)
    task, attempt = begin(two, study, new_task(), store)
    left, its_attempt = begin(two, study, new_task("left"), store)
    two.end(study, left, its_attempt, CRASH, {}, is_told=False, is_left=True)
    one.finish(study, version=store.now(study).version)
    assert one.adopt(study) is None
    with pytest.raises(AttemptOver):
        two.report(study, task, attempt, {"world_size": 2}, (3, 1.5))
    two.end(study, task, attempt, outcome, {}, is_told=is_told, is_left=not is_told)
    found = store.optuna_study(study, Part("z0")).get_trials(deepcopy=False)
    assert [(t.state, t.user_attrs["reason"]) for t in found] == [(TrialState.FAIL, "cancelled")] * 2
    check_whole(store, study, "finish")
    leave(store.engine, two.me)
    assert two.claimed(study) == []


def test_a_trial_that_was_over_meanwhile_is_not_said_to_be_somebody_elses(store: Store) -> None:
    """Whoever looks for added trials may see that one runs before it sees that its claim is given back."""
    study, _ = store.create(spec())
    ledger = ledger_of(store)
    task, attempt = begin(ledger, study, new_task(), store)
    ledger.end(study, task, attempt, Cancelled(), {}, is_told=True)
    store.optuna_study(study, Part("z0")).ask()
    over, added = (Part("z0"), task.trial), (Part("z0"), task.trial + 1)
    assert ledger.end_added(study, [over, added], "it is not ours") == [added]
