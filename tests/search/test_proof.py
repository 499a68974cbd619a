"""What runs again to show whether the machine is well."""

from dataclasses import replace

import pytest

from dsopt.search.history import History, Observation
from dsopt.search.proof import proof_step
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from tests.made_up import confirming, facts, history, observation, spec

FAST, BEST = (Candidate(stage=1, micro_batch=size, gas=1) for size in (4, 8))
TRIED = [observation(FAST, value=90.0, trial=1), observation(BEST, value=110.0, trial=2)]


def name_of(study: StudySpec, known: History) -> str | None:
    step = proof_step(study, known, ["n1"])
    return None if step is None else f"{step.name}:{step.round}"


def again(name: str, state: str, round_: int = 1, why: str | None = None) -> Observation:
    return replace(TRIED[0], name=name, round=round_, candidate=None, state=state, why=why)  # type: ignore[arg-type]


@pytest.fixture
def known() -> History:
    return history(*TRIED, baseline=facts(zero_stage=1))


def with_runs(known: History, *runs: Observation) -> History:
    return replace(known, reference=[*known.reference, *runs])


def test_it_is_the_users_own_where_the_machine_failed(known: History) -> None:
    step = proof_step(spec({}), known, ["n1"])
    assert step is not None
    assert (step.name, step.round, step.candidate, step.on) == ("baseline", 1, None, ["n1"])
    assert name_of(spec({}), with_runs(known, again("baseline", "measured"))) == "baseline:2"
    assert (
        name_of(spec({}), with_runs(known, again("baseline", "running"))) == f"{BEST.name}:1"
    )  # it may be what failed
    assert name_of(spec({}), with_runs(known, again("baseline", "running", why=step.why))) is None
    assert name_of(spec({}), replace(known, reference=[again("baseline", "failed", 0)])) == f"{BEST.name}:1"
    assert name_of(spec({}), replace(history(), reference=[])) is None


def test_another_is_taken_where_a_proof_has_failed_itself(known: History) -> None:
    """It kept all others off."""
    step = proof_step(spec({}), known, [])
    assert step is not None
    failed = again("baseline", "running", why=step.why)
    assert proof_step(spec({}), with_runs(known, failed), []) is None  # it goes on
    other = proof_step(spec({}), with_runs(known, failed), [], {"baseline"})
    assert other is not None
    assert other.name == BEST.name
    both = with_runs(known, failed, again(BEST.name, "running", why=step.why))
    assert proof_step(spec({}), both, [], {"baseline", BEST.name}) is None


def test_they_end(known: History) -> None:
    step = proof_step(spec({}), known, [])
    assert step is not None
    many = [again("baseline", "measured", round_, step.why) for round_ in range(1, 13)]
    assert proof_step(spec({}), with_runs(known, *many[1:]), []) is not None
    assert proof_step(spec({}), with_runs(known, *many), []) is None


def test_rounds_that_the_user_asks_for_are_left_alone(known: History) -> None:
    asked = confirming(spec({}), finalists=1, rounds=2)
    assert name_of(asked, known) == "baseline:3"
    assert name_of(asked, with_runs(known, again("baseline", "measured", 3))) == "baseline:4"
