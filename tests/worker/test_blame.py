"""Whose fault a run is that died without a word."""

from dataclasses import replace

import pytest

from dsopt.errors import DsoptError
from dsopt.experiment.outcome import Cancelled, CancelledReason, Failed, Infeasible
from dsopt.store.attempts import Task
from dsopt.study.part import Part
from dsopt.worker import blame
from dsopt.worker.blame import NodeHealth, may_be_chance, verdict

DIED = Failed(reason="crash", message="signal 9", retryable=True)
FAULTY = Failed(reason="hardware", message="ECC", retryable=True, device=1)
RAISED = Failed(reason="crash", message="KeyError")


def task(name: str) -> Task:
    return Task(part=Part("z1"), trial=0, name=name, round=0)


def test_a_run_that_died_is_tried_elsewhere_if_there_is_an_elsewhere() -> None:
    died = [{"state": "failed", "reason": "crash", "node": "other"}]
    lost = [{"state": "failed", "reason": "lost", "node": "other"}] * 5
    assert verdict(DIED, [], 2, node="me", others_live=True) == "elsewhere"
    assert verdict(DIED, [], 2, node="me", others_live=False) == "again"
    assert verdict(DIED, died, 2, node="me", others_live=True) == "tell"
    cancelled = {"state": "cancelled", "reason": "cancelled", "node": "other"}
    assert verdict(DIED, [*lost, cancelled], 2, node="me", others_live=False) == "again"
    assert verdict(DIED, [], 1, node="me", others_live=True) == "tell"


def test_a_node_alone_charges_nobody_while_others_live() -> None:
    """They may be busy for longer than it leaves the trial to them."""
    here = [{"state": "failed", "reason": "crash", "node": "me"}]
    assert verdict(DIED, here * 3, 2, node="me", others_live=True) == "elsewhere"
    assert verdict(DIED, here * 5, 2, node="me", others_live=True) == "tell"  # for ever it is not tried
    assert verdict(DIED, here, 2, node="me", others_live=False) == "tell"


def test_the_first_run_of_a_study_that_raises_is_tried_once_more() -> None:
    """A result said that a configuration does not run which had met one error of a data service."""
    raised = [{"state": "failed", "reason": "crash", "node": "me"}]
    assert may_be_chance(task("baseline"), RAISED)
    assert verdict(RAISED, [], 5, node="me", others_live=False) == "again"
    assert verdict(RAISED, raised, 5, node="me", others_live=False) == "tell"
    assert not may_be_chance(task("z1_gas1_tmbspg4"), RAISED)
    assert not may_be_chance(task("baseline"), Failed(reason="no_metrics", message="it ended"))
    assert not may_be_chance(task("baseline"), Infeasible(reason="oom", message="out of memory"))
    full = Infeasible(reason="host_oom", message="the host's memory was full")
    met = [{"state": "infeasible", "reason": "host_oom", "node": "me"}]
    assert may_be_chance(task("baseline"), full) and not may_be_chance(task("z1_gas1_tmbspg4"), full)
    assert verdict(full, [], 5, node="me", others_live=False) == "again"
    assert verdict(full, met, 5, node="me", others_live=False) == "tell"
    assert may_be_chance(task("z1_gas1_tmbspg4"), DIED)


def test_what_ranks_say_of_their_machine_makes_no_node_suspect() -> None:
    """A port that is taken, or a disk that is too small, is told; three of them say nothing of the node."""
    health = NodeHealth()
    for name in ("a", "b", "c"):
        health.note(
            task(name), Failed(reason="machine", message="address already in use", retryable=True), is_fault=False
        )
    assert not health.is_suspect


def test_faults_of_the_machine_are_no_deaths() -> None:
    met = [{"state": "failed", "reason": "machine", "node": "me"}] * 5
    assert verdict(DIED, met, 2, node="me", others_live=False) == "again"


def test_a_gpu_that_fails_is_not_charged_to_anybody() -> None:
    failed = [{"state": "failed", "reason": "hardware", "node": "me"}] * 2
    assert verdict(FAULTY, failed, 1, node="me", others_live=False) == "again"
    assert verdict(DIED, failed, 2, node="me", others_live=False) == "again"
    assert verdict(FAULTY, [*failed, failed[0]], 5, node="me", others_live=False) == "tell"  # no three GPUs are faulty
    health = NodeHealth()
    for name in ("a", "b", "c"):
        health.note(task(name), FAULTY, is_fault=False)
    assert not health.is_suspect


def test_a_training_on_a_node_is_charged_to_nobody_however_long_it_lasts() -> None:
    taken = Failed(reason="taken", message="a training of 'dsopt run' has 8 GPUs there", retryable=True, node="b")
    row = {"state": "failed", "reason": "taken", "node": "me"}
    assert verdict(taken, [row] * 500, 1, node="me", others_live=False) == "again"
    assert verdict(DIED, [row] * 500, 2, node="me", others_live=False) == "again"
    health = NodeHealth()
    for name in ("a", "b", "c"):
        health.note(task(name), taken, is_fault=False)
    assert not health.is_suspect


def test_three_candidates_that_die_one_after_another_make_a_node_suspect() -> None:
    health = NodeHealth()
    for name in ("a", "a", "b"):
        health.note(task(name), DIED, is_fault=False)
    assert not health.is_suspect
    health.note(task("c"), Cancelled(), is_fault=False)  # says nothing
    assert not health.is_suspect
    health.note(task("c"), DIED, is_fault=False)
    assert health.is_suspect
    assert [task.name for task in health.died] == ["a", "a", "b", "c"]


def test_a_task_is_left_to_other_nodes_for_a_while(monkeypatch) -> None:
    """Until what they run is over. They may have no room: then it would wait for ever."""
    health = NodeHealth()
    ended = {"started_at": 5.0, "finished_at": 15.0, "state": "measured"}
    lost = {"started_at": 5.0, "finished_at": 9000.0, "state": "failed"}  # found dead days later
    going = {"started_at": 5.0, "finished_at": None, "state": "running"}
    health.avoid(task("a"), [ended, lost, going])
    assert health.avoids((Part("z1"), 0))
    assert not health.avoids((Part("z1"), 1))
    now = blame.time.monotonic()
    monkeypatch.setattr(blame.time, "monotonic", lambda: now + 69)
    assert health.avoids((Part("z1"), 0))
    monkeypatch.setattr(blame.time, "monotonic", lambda: now + 71)
    assert not health.avoids((Part("z1"), 0))


def test_a_run_that_says_something_clears_a_node() -> None:
    for said in (RAISED, Infeasible(reason="oom", message="no memory left")):
        health = NodeHealth()
        for name in ("a", "b"):
            health.note(task(name), DIED, is_fault=False)
        health.note(task("c"), said, is_fault=False)
        health.note(task("d"), DIED, is_fault=False)
        assert not health.is_suspect


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("suspended", "were suspended with this worker"),
        ("no_room", "the disk of the results was full"),
        ("removed", "lost their folder"),
    ],
)
def test_a_task_whose_runs_all_end_for_a_reason_beside_them_is_not_tried_for_ever(
    reason: CancelledReason, said: str
) -> None:
    health, ended = NodeHealth(), Cancelled(reason=reason, message="for 9 s")
    for name, outcome in (("a", Cancelled()), ("a", DIED)) * 9:
        health.note(task(name), outcome, is_fault=False)
        health.refuse_repeats("tune", task(name))
    for trial in range(5):  # a run that is cancelled is a trial of its own
        health.refuse_repeats("tune", task("a"))
        health.note(replace(task("a"), trial=trial), ended, is_fault=False)
    with pytest.raises(DsoptError, match=f"5 runs of a .*{said}"):
        health.refuse_repeats("tune", task("a"))
