"""What is begun while something waits for the machine."""

from dsopt.search.history import History
from dsopt.search.plan import next_step
from dsopt.search.steps import Explore, Wait
from dsopt.study.part import Part
from dsopt.study.space import Candidate
from dsopt.worker.meanwhile import step_meanwhile
from tests.made_up import facts, history, observation, spec

SIZES = {"train_micro_batch_size_per_gpu": [1, 2, 4, 8, 16], "zero_optimization": {"stage": [1]}}
BEST = Candidate(stage=1, micro_batch=16, gas=1)


def known() -> History:
    """What waits is believed to be the best, and the others are hardly worth a run."""
    waiting = observation(BEST, state="running", reason=None, trial=7)
    return history(waiting, baseline=facts(zero_stage=1))


def test_what_nothing_else_is_worth_as_much_as_is_not_waited_for_alone() -> None:
    """It failed, and what would show whose fault that is was not begun: for eight minutes nothing was."""
    study, asked = spec(SIZES), []
    assert next_step(study, known()) == Wait()
    step = step_meanwhile(study, known(), lambda trial: asked.append(trial) or True)
    assert isinstance(step, Explore)
    assert asked == [(Part("z1"), 7)]
    assert {candidate.micro_batch for candidate in step.candidates} <= {2, 4, 8}
    assert step_meanwhile(study, known(), lambda _: False) is None
