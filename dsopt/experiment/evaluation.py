"""Passes without gradients between steps: left out as an evaluation, or spread over the steps that they are for.

Where most steps of the user's own run begin with some, as in reinforcement learning, they are part of training in all
runs of a study, however many steps a candidate does after each. Otherwise they count only if the study says so, since
how many of them a run sees is chance.
"""

from collections.abc import Sequence
from typing import Final

from dsopt.experiment.rules import RunRules
from dsopt.protocol.events import Step

MOST: Final = 0.5


def evaluated_share(steps: Sequence[Step]) -> float:
    """The share of the steps before which there were passes without gradients; the first one does not count."""
    later = steps[1:]
    return sum(step.evaluation_seconds > 0 for step in later) / len(later) if later else 0.0


def counts_evaluation(steps: Sequence[Step], rules: RunRules) -> bool:
    """Whether passes without gradients are part of these steps."""
    known = rules.own is not None and rules.own.micro_batch > 0
    return rules.measurement.count_evaluation or (
        rules.own.is_evaluated if rules.own is not None and known else evaluated_share(steps) >= MOST
    )


def step_seconds(steps: Sequence[Step], *, counts: bool) -> list[float]:
    """Wall clock of each step: without passes that precede its first, or with its share of them.

    What precedes a step is for that one and all up to the next that has some. The last ones so far are taken to be for
    as many steps as those before were, or for all since.
    """
    own = [step.seconds - step.evaluation_seconds for step in steps]
    if not counts:
        return own
    begins = [index for index, step in enumerate(steps) if step.evaluation_seconds > 0]
    length = 0
    for begin, end in zip(begins, [*begins[1:], len(steps)], strict=True):
        is_whole = end < len(steps)
        length = end - begin if is_whole else max(length, end - begin)
        for index in range(begin, end):
            own[index] += steps[begin].evaluation_seconds / length
    return own
