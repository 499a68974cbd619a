"""Runs side by side that get in each other's way, such as by a port of a fixed number, are run one after the other."""

import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Measured, Outcome
from dsopt.launch.devices import DevicePool
from dsopt.store.attempts import Task
from dsopt.store.studies import Store
from dsopt.study.load import load_spec
from dsopt.study.part import Part
from dsopt.study.space import ZERO, Candidate
from dsopt.worker.assignment import Assignment
from dsopt.worker.company import Company
from dsopt.worker.ending import Ending
from dsopt.worker.happenings import Happening, RunsAlone
from dsopt.worker.loop import Worker
from tests.conftest import SCRIPTS
from tests.made_up import spec
from tests.studies import write_study

# a script with a lock of its own, which one run after the other may have
LAUNCHER = f"""#!/bin/sh
exec 9> LOCK
if ! flock --nonblock 9; then
    echo '{{"v": 1, "event": "error", "rank": 0, "type": "RuntimeError", "time": 1.0, "message": "SAID"}}' \\
        >> "$DSOPT_RUN_DIR/events-rank0.jsonl"
    exit 1
fi
exec {SCRIPTS / "deepspeed"} "$@"
"""
CANDIDATE = Candidate(stage=1, micro_batch=4, gas=1)
OFFLOADS = Candidate(stage=1, micro_batch=4, gas=1, knobs=((f"{ZERO}offload_optimizer.device", "cpu"),))
RAISED = Failed(reason="crash", message="KeyError")


def task(name: str, trial: int = 0, round_: int = 0) -> Task:
    return Task(part=Part("z1"), trial=trial, name=name, round=round_)


def begun(of: Task, candidate: Candidate = CANDIDATE) -> Assignment:
    """What only its study, task and candidate are known of."""
    return SimpleNamespace(study=SimpleNamespace(spec=spec()), task=of, candidate=candidate)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("round_", "candidate", "is_alone"),
    [(0, CANDIDATE, False), (1, CANDIDATE, True), (0, OFFLOADS, True), (0, None, False), (2, None, True)],
)
def test_what_is_compared_and_what_computes_on_the_host_runs_alone(
    round_: int, candidate: Candidate | None, is_alone: bool
) -> None:
    company = Company()
    assert company.bears(spec(), round_, candidate, is_new=True, in_hand=0)
    assert company.bears(spec(), round_, candidate, is_new=True, in_hand=1) is not is_alone
    assert company.may_begin(in_hand=1) is not is_alone  # it is awaited
    assert company.may_begin(in_hand=0)
    assert company.bears(spec(), round_, candidate, is_new=True, in_hand=0)
    company.begun(begun(task("a", round_=round_), candidate))  # type: ignore[arg-type]
    assert company.may_begin(in_hand=1) is not is_alone
    assert not company.is_doubtful(task("a", round_=round_), RAISED, had_company=False)
    assert company.may_begin(in_hand=1)


def test_a_study_whose_own_configuration_offloads_has_no_company() -> None:
    offloads = spec({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})
    company = Company()
    assert not company.bears(offloads, 0, None, is_new=True, in_hand=1)
    assert not company.bears(offloads, 0, CANDIDATE, is_new=True, in_hand=1)
    assert company.bears(offloads, 0, Candidate(stage=0, micro_batch=4, gas=1), is_new=True, in_hand=1)


@pytest.mark.parametrize("said", ["no lock", "[Errno 98] Address already in use"])
@pytest.mark.parametrize("lanes", [2, 4])
def test_runs_with_a_lock_of_their_script_are_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int, said: str
) -> None:
    monkeypatch.setenv("SIMULATED_SECONDS", "0.6")
    launcher = tmp_path / "deepspeed"
    launcher.write_text(LAUNCHER.replace("LOCK", str(tmp_path / "lock")).replace("SAID", said))
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    write_study(tmp_path, command=f"{launcher} --num_gpus 1 train.py --deepspeed_config ds.json")
    store = Store.open(f"sqlite:///{tmp_path}/dsopt.db", make=True)
    made, _ = store.create(load_spec(tmp_path / "study.yaml")[0])
    told: list[Happening] = []
    Worker(store, DevicePool(kind="cpu", indices=tuple(range(lanes))), Ending(), told.append).work(lambda: [made])
    assert len([happening for happening in told if isinstance(happening, RunsAlone)]) == 1
    study = store.get("simulated")
    assert store.state(study) == "finished"
    runs = store.runs(study)
    failed = [run["candidate"] for run in runs if run["state"] == "failed"]
    assert 1 <= len(failed) == len(set(failed)) <= lanes
    measured = {run["candidate"] for run in runs if run["state"] == "measured"}
    assert set(failed) <= measured
    store.close()


def test_a_run_that_fails_alone_too_is_charged() -> None:
    company = Company()
    assert company.may_begin(in_hand=1)
    assert not company.is_doubtful(task("a"), RAISED, had_company=False)
    assert not company.is_doubtful(task("a"), Infeasible(reason="oom", message="none left"), had_company=True)
    assert company.is_doubtful(task("a"), RAISED, had_company=True)
    assert not company.may_begin(in_hand=1)
    assert company.may_begin(in_hand=0)
    company.begun(begun(task("a")))
    assert not company.may_begin(in_hand=1)
    assert not company.is_doubtful(task("a"), RAISED, had_company=False)
    assert company.may_begin(in_hand=1)
    assert not company.is_doubtful(task("a"), RAISED, had_company=True)  # once is enough
    assert not company.bears_none


def test_several_that_fail_beside_each_other_are_tried_alone_one_after_the_other() -> None:
    company = Company()
    for trial in range(3):
        assert company.is_doubtful(task("x", trial), RAISED, had_company=True)
    for trial in range(2):
        assert not company.may_begin(in_hand=1)
        assert company.bears(spec(), 0, CANDIDATE, is_new=False, in_hand=0)
        company.begun(begun(task("x", trial)))
        assert not company.may_begin(in_hand=1)
        assert not company.is_doubtful(task("x", trial), RAISED, had_company=False)
        assert company.failed_beside_others(task("x", trial))
    assert not company.may_begin(in_hand=1)  # one still waits
    company.begun(begun(task("x", 2)))
    assert not company.is_doubtful(task("x", 2), RAISED, had_company=False)
    assert company.may_begin(in_hand=1)
    assert not company.is_doubtful(task("y", 3), RAISED, had_company=True)  # it is the script


@pytest.mark.parametrize(
    "outcome",
    [
        Infeasible(reason="host_oom", message="full"),
        Infeasible(reason="oom", message="rank 0: [Errno 12] Cannot allocate memory"),  # of ranks on the host
        Failed(reason="timeout", message="2 h"),
    ],
)
def test_what_others_may_have_used_up_is_not_charged_before_a_run_alone(outcome: Outcome) -> None:
    company = Company()
    for trial in range(4 if outcome.reason == "host_oom" else 1):  # however many fill the host alone, too
        assert company.is_doubtful(task("a", trial), outcome, had_company=True)
        assert not company.may_begin(in_hand=1)
        company.begun(begun(task("a", trial)))
        assert not company.is_doubtful(task("a", trial), outcome, had_company=False)
    assert not company.bears_none
    assert company.is_doubtful(task("b", 4), outcome, had_company=True)
    company.begun(begun(task("b", 4)))
    assert not company.is_doubtful(task("b", 4), Measured.__new__(Measured), had_company=False)
    assert company.bears_none


def test_what_does_not_fit_its_own_device_needs_no_run_alone() -> None:
    company = Company()
    oom = Infeasible(reason="oom", message="rank 0: CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert not company.is_doubtful(task("a", 0), oom, had_company=True)


def test_a_run_that_was_cancelled_alone_has_proven_nothing() -> None:
    company = Company()
    assert company.is_doubtful(task("a"), RAISED, had_company=True)
    company.begun(begun(task("a")))
    assert not company.is_doubtful(task("a"), Cancelled(), had_company=False)
    assert company.is_doubtful(task("a"), RAISED, had_company=True)


def test_another_worker_may_have_taken_it() -> None:
    company = Company()
    assert company.is_doubtful(task("a"), RAISED, had_company=True)
    assert company.bears(spec(), 0, CANDIDATE, is_new=True, in_hand=0)
    company.begun(begun(task("b", trial=1)))
    assert company.may_begin(in_hand=1)
    assert not company.is_doubtful(task("b", trial=1), Measured.__new__(Measured), had_company=True)
    assert not company.bears_none
