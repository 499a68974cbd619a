"""Faults of the machine that runs tell of: nobody is charged, unless something else goes well after them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from dsopt.errors import DsoptError
from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Outcome
from dsopt.store.attempts import Task
from dsopt.study.part import REFERENCE, Part
from dsopt.worker import outage
from dsopt.worker.happenings import WorkerPaused, WorkerWentOn
from dsopt.worker.outage import Outage
from tests.conftest import Dsopt
from tests.store.ledger import measured
from tests.studies import check_nothing_lost_nothing_doubled, runs_of, until, write_study

CHARGED = "WARNING: a run of 1 configuration met a fault of the machine, and counts as failed"
FAULT = Failed(reason="machine", message="no network", retryable=True)
BASELINE = Task(part=REFERENCE, trial=3, name="baseline", round=1)
A, B = (Task(part=Part("z1"), trial=number, name=name, round=0) for number, name in enumerate("ab"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which only a test changes."""
    now = [1000.0]
    monkeypatch.setattr(outage, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def told() -> list[object]:
    return []


@pytest.fixture
def found(clock: list[float], told: list[object]) -> Outage:
    return Outage(told.append)


def run(found: Outage, task: Task, outcome: Outcome, *nodes: str) -> None:
    found.begun(task, nodes or ("n1",))
    note(found, task, outcome)


def note(found: Outage, task: Task, outcome: Outcome) -> None:
    found.note(task, outcome, is_fault=isinstance(outcome, Failed) and outcome.reason == "machine")


def test_a_run_that_met_a_fault_waits_while_another_begins(found: Outage, clock: list[float]) -> None:
    run(found, A, FAULT)
    assert found.avoids(A.key)
    assert not (found.is_on or found.avoids_others or found.avoids(B.key))
    clock[0] += 2
    assert not found.avoids(A.key)
    clock[0] += 300  # other workers have taken it
    assert not found.is_waited_for


def test_where_two_have_met_a_fault_they_are_tried_one_at_a_time(found: Outage, clock: list[float]) -> None:
    """What began in each pause beside them exceeded the limits that the user had set, and another best was told."""
    run(found, A, FAULT)
    found.begun(replace(B, trial=7), ["n1"])
    run(found, B, FAULT)
    assert found.is_on
    clock[0] += 2
    assert not found.is_on  # what goes on began before the last fault
    assert found.avoids_others
    assert [found.avoids(task.key) for task in (A, B)] == [False, True]
    found.begun(A, ["n1"])
    clock[0] += 600
    assert found.is_on
    found.stands(A)
    assert not found.is_on  # its start is over: the next may begin
    note(found, A, FAULT)
    clock[0] += 4
    assert found.avoids_others
    assert [found.avoids(task.key) for task in (A, B)] == [True, False]
    run(found, B, FAULT)
    clock[0] += 8
    assert not found.avoids_others  # both have failed twice: something else has its turn, then they
    assert [found.avoids(task.key) for task in (A, B)] == [True, True]
    clock[0] += 8
    assert [found.avoids(task.key) for task in (A, B)] == [False, True]
    run(found, A, measured())
    assert not (found.is_on or found.avoids_others or found.avoids(B.key))


def test_what_waits_keeps_nothing_off_where_others_have_taken_it(found: Outage, clock: list[float]) -> None:
    for task in (A, B):
        run(found, task, FAULT)
    clock[0] += 2
    assert found.avoids_others
    clock[0] += 8
    assert not found.avoids_others
    assert found.is_waited_for
    clock[0] += 300
    assert not found.is_waited_for


def test_each_that_waits_has_its_turn(found: Outage, clock: list[float]) -> None:
    """Or two that never run would keep off the one whose run proves that the machine is well."""
    tasks = [replace(A, trial=number) for number in range(4)]
    for task in tasks:
        run(found, task, FAULT)
    began = []
    for _ in range(8):
        while not (free := [task for task in tasks if not (found.is_on or found.avoids(task.key))]):
            clock[0] += 1
        began.append(free[0].trial)
        run(found, free[0], FAULT)
    assert began == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("outcome", [measured(), Cancelled(), Infeasible(reason="oom", message="no memory")])
def test_what_failed_twice_waits_for_a_run_that_may_prove_something(
    found: Outage, clock: list[float], outcome: Outcome
) -> None:
    """Or one that fails within seconds would fail again during each run of minutes: none would be after its last."""
    run(found, A, FAULT)
    found.begun(B, ["n1"])
    clock[0] += 600
    assert not found.avoids(A.key)  # it may have been nothing
    run(found, A, FAULT)
    clock[0] += 600
    assert not found.avoids(A.key)  # the other one began before that
    note(found, B, Cancelled())
    found.begun(replace(B, trial=8), ["n2"])
    assert not found.avoids(A.key)
    found.begun(B, ["n1"])
    assert found.avoids(A.key)
    note(found, B, outcome)
    assert not found.avoids(A.key)


def test_what_failed_twice_needs_a_run_that_shows_whose_fault_that_was(found: Outage) -> None:
    run(found, A, FAULT, "n2", "n1")
    assert found.unproved_on is None
    run(found, A, FAULT, "n2", "n1")
    assert found.unproved_on == ["n1", "n2"]
    found.begun(BASELINE, ["n1", "n2"])
    assert found.unproved_on is None
    note(found, BASELINE, measured())
    assert found.unproved_on is None
    run(found, A, FAULT, "n1")  # the next proof is due at once
    assert found.unproved_on == ["n1"]


def test_no_worker_ends_before_its_last_run(found: Outage, clock: list[float]) -> None:
    """That one had met the outage, and goes well now: what it cost was lost, since another is at fault itself."""
    run(found, B, FAULT)
    found.begun(B, ["n1"])
    for _ in range(9):
        clock[0] += 120
        assert not found.is_on
        run(found, A, FAULT)
    clock[0] += 120
    found.refuse("tune")
    assert found.is_on
    note(found, B, measured())
    assert not found.is_on
    found.refuse("tune")


def test_no_worker_ends_while_another_run_goes_on_or_has_just_gone_well(found: Outage, clock: list[float]) -> None:
    found.begun(B, ["n1"])
    for _ in range(12):
        run(found, A, FAULT)
        found.refuse("tune")
        clock[0] += 120
    note(found, B, measured())  # it had begun before: no proof
    run(found, A, FAULT)
    assert not found.is_own(A, 0, 1)
    found.refuse("tune")
    for _ in range(9):
        clock[0] += 120
        run(found, A, FAULT)
    with pytest.raises(DsoptError, match="as if this machine were at fault"):
        found.refuse("tune")


def test_what_fails_after_enough_proofs_waits_no_more(found: Outage) -> None:
    for proofs in (0, 1):
        run(found, A, FAULT)
        assert not found.is_own(A, proofs, 2)
        assert found.is_waited_for
    assert found.is_own(A, 2, 2)
    assert not found.is_waited_for


@pytest.mark.parametrize(
    ("nodes", "proves"), [(["n1"], False), (["n1", "n3"], False), (["n1", "n2"], True), (["n1", "n2", "n3"], True)]
)
def test_a_run_proves_something_of_the_nodes_that_it_had(found: Outage, nodes: list[str], proves: bool) -> None:
    run(found, A, FAULT, "n1", "n2")
    run(found, B, measured(), *nodes)
    assert found.avoids(A.key) is not proves


def test_runs_that_together_cover_the_nodes_prove_something_too(found: Outage) -> None:
    run(found, A, FAULT, "n1", "n2")
    run(found, A, FAULT, "n1", "n2")
    assert found.unproved_on == ["n1", "n2"]
    run(found, B, measured(), "n1")
    assert found.unproved_on == ["n2"]
    run(found, B, measured(), "n2", "n3")
    assert not found.avoids(A.key)


def test_a_run_proves_nothing_that_had_begun_before_the_last_fault(found: Outage) -> None:
    """It may have read its data before the network was gone."""
    found.begun(B, ["n1"])
    run(found, A, FAULT)
    note(found, B, measured())
    assert found.avoids(A.key)
    found.begun(B, ["n1"])
    run(found, A, FAULT)
    note(found, B, measured())
    assert found.avoids(A.key)
    assert found.is_waited_for


def test_a_worker_waits_for_longer_each_time_and_ends_after_ten(
    found: Outage, clock: list[float], told: list[object]
) -> None:
    """Runs that fail side by side are one fault."""
    began = clock[0]
    run(found, BASELINE, measured())
    for number, pause in enumerate((2, 4, 8, 16, 32, 64, 120, 120, 120)):
        for task in (A, replace(B, trial=10 + number)):  # a new one each time
            run(found, task, FAULT)
        found.refuse("tune")
        clock[0] += pause - 0.5
        assert found.is_on
        clock[0] += 0.5
        assert not found.is_on
    assert [type(one) for one in told] == [WorkerPaused]
    assert clock[0] - began > 480
    run(found, A, FAULT)
    assert not found.is_own(A, 0, 2)
    with pytest.raises(
        DsoptError, match=r"runs failed as if this machine were at fault. The last: no network They \(a, b\) do not"
    ):
        found.refuse("tune")
    run(found, B, measured())
    found.refuse("tune")
    assert isinstance(told[-1], WorkerWentOn)


def test_without_a_proof_only_the_user_may_say_whose_fault_it_is(
    found: Outage, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a comparison whose last configuration never runs: nothing is left to begin beside it."""
    run(found, BASELINE, measured())
    for _ in range(10):
        run(found, A, FAULT)
        assert not found.is_own(A, 0, 1)
        clock[0] += 120
    with pytest.raises(DsoptError, match=r"DSOPT_CHARGE_FAULTS=1 dsopt worker tune"):
        found.refuse("tune")
    monkeypatch.setenv("DSOPT_CHARGE_FAULTS", "1")
    assert found.is_own(A, 0, 9)
    found.refuse("tune")
    assert not found.is_waited_for


@pytest.mark.slow
def test_a_network_that_is_away_for_a_while_changes_no_result(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    until((dsopt.cwd / "autotuning_results" / "baseline" / "metrics.json").exists, 120)
    (dsopt.cwd / "outage").write_text("*")
    until(lambda: [run["reason"] for run in runs_of(dsopt)].count("machine") >= 3, 120, look_seconds=0.3)
    (dsopt.cwd / "outage").unlink()
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt)
    assert dsopt.json("study", "best", "simulated")["comparison"]["best"] == "z1_gas1_tmbspg16"
    runs = runs_of(dsopt)
    assert {run["candidate"] for run in runs if run["state"] == "failed"} <= {
        run["candidate"] for run in runs if run["state"] == "measured"
    }
    assert "fault of the machine" not in dsopt("study", "show", "simulated")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["dies", "raises"])
def test_an_outage_that_no_run_names_charges_nobody(dsopt: Dsopt, how: str) -> None:
    """Seven candidates counted as failed, among them the fastest, and whatever was larger was not tried."""
    write_study(dsopt.cwd, confirmation=None)
    dsopt("study", "create", "study.yaml")
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    until((dsopt.cwd / "autotuning_results" / "baseline" / "metrics.json").exists, 120)
    (dsopt.cwd / "outage").write_text(f"* {how}")
    until(lambda: [run["reason"] for run in runs_of(dsopt)].count("crash") >= 4, 120, look_seconds=0.3)
    (dsopt.cwd / "outage").unlink()
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    assert "failed, and is tried again: " in output
    check_nothing_lost_nothing_doubled(dsopt)
    runs = runs_of(dsopt)
    measured = {run["candidate"] for run in runs if run["state"] == "measured"}
    assert {run["candidate"] for run in runs} == measured
    assert "others failed" in dsopt("study", "show", "simulated", "--why")


def create(dsopt: Dsopt, outage: str, **keys: object) -> None:
    """A study of which the runs that match this find no network."""
    write_study(dsopt.cwd, **keys)
    (dsopt.cwd / "outage").write_text(outage)
    dsopt("study", "create", "study.yaml")


@pytest.mark.slow
def test_a_fault_that_only_one_configuration_meets_is_its_own_and_told(dsopt: Dsopt) -> None:
    """Such as a disk that is too small for what it offloads."""
    create(dsopt, "z1_gas1_tmbspg16:0")
    dsopt("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt)
    assert dsopt.json("study", "best", "simulated")["comparison"]["best"] != "z1_gas1_tmbspg16"
    assert 3 <= [run["reason"] for run in runs_of(dsopt)].count("machine") <= 4
    assert CHARGED in dsopt("study", "show", "simulated")


@pytest.mark.slow
def test_a_fault_of_what_is_left_alone_is_its_own_once_another_run_goes_well(dsopt: Dsopt) -> None:
    """The worker waited for eight minutes and ended, since nothing else was to be tried."""
    config = {"train_micro_batch_size_per_gpu": [8, 16], "zero_optimization": {"stage": 1}}
    create(dsopt, "z1_gas1_tmbspg16:0", ds_config=config, confirmation=None)
    dsopt("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt)
    runs = runs_of(dsopt)
    assert [run["reason"] for run in runs].count("machine") == 4
    assert 2 <= sum(run["candidate"] == "baseline" and run["state"] == "measured" for run in runs) <= 4
    shown = dsopt("study", "show", "simulated", "--why")
    assert CHARGED in shown
    assert "others failed" in shown


@pytest.mark.slow
def test_an_outage_changes_nothing_of_what_is_tried(dsopt: Dsopt) -> None:
    """New ones began as long as it lasted, beyond the limit."""
    config = {"train_micro_batch_size_per_gpu": [4, 8, 16, 32], "zero_optimization": {"stage": 1}}
    create(dsopt, "z1_*:0", ds_config=config, autotuning={"tuner_num_trials": 2}, confirmation=None)
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:4")
    until(lambda: [run["reason"] for run in runs_of(dsopt)].count("machine") >= 5, 120, look_seconds=0.3)
    (dsopt.cwd / "outage").unlink()
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt)
    tried = [run["candidate"] for run in runs_of(dsopt) if run["candidate"].startswith("z1_")]
    assert len(set(tried)) == 2


@pytest.mark.slow
def test_nobody_is_charged_without_a_proof_but_the_user_may_say_so(dsopt: Dsopt) -> None:
    """What comes next waits for the confirmation of the best."""
    config = {"train_micro_batch_size_per_gpu": [4, 8, 16], "zero_optimization": {"stage": 1}}
    create(dsopt, "z1_gas1_tmbspg16:1", ds_config=config, autotuning={"tuner_type": "gridsearch"})
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    until(lambda: [run["reason"] for run in runs_of(dsopt)].count("machine") >= 3, 120, look_seconds=0.3)
    worker.terminate()
    worker.communicate(timeout=60)
    assert dsopt.json("study", "show", "simulated")["state"] != "finished"
    dsopt.environment["DSOPT_CHARGE_FAULTS"] = "1"
    dsopt("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt)
    assert CHARGED in dsopt("study", "show", "simulated")


@pytest.mark.slow
def test_a_baseline_that_meets_it_is_never_said_not_to_run(dsopt: Dsopt) -> None:
    create(dsopt, "baseline:0")
    dsopt.environment["DSOPT_CHARGE_FAULTS"] = "1"
    said = dsopt("worker", "simulated", "--devices", "cpu:2", code=1)
    assert "the baseline could not be measured: rank 0: ConnectionError: Max retries exceeded." in said
