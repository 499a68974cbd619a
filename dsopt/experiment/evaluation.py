"""Passes without gradients between steps: left out as an evaluation, or spread over the steps that they are for.

Where most steps of the user's own run begin with some, as in reinforcement learning, or they take much of its time,
they are part of training in all runs of a study, however many steps a candidate does after each. Otherwise they count
only if the study says so, since how many of them a run sees is chance.
"""

import itertools
from collections.abc import Sequence
from typing import Final

from dsopt.experiment.outcome import Failed
from dsopt.experiment.rules import RunRules
from dsopt.protocol.events import Step

_MOST: Final = 0.5  # of the steps
_MUCH: Final = 0.2  # of the time
_FEWEST: Final = 2  # so many come again
_LONG_ENOUGH: Final = 100  # steps after which nothing is waited for


def shows_evaluation(steps: Sequence[Step]) -> bool:
    """Whether these steps show passes without gradients as a part of training; before the first step they do not."""
    later = steps[1:]
    seen = times_evaluated(steps)
    share = sum(step.evaluation_seconds for step in later) / sum(step.seconds for step in later) if later else 0.0
    return seen >= max(1, _MOST * len(later)) or (seen >= _FEWEST and share >= _MUCH)


def times_evaluated(steps: Sequence[Step]) -> int:
    """How many steps after the first one began with passes without gradients."""
    return sum(step.evaluation_seconds > 0 for step in steps[1:])


def has_seen_enough(steps: Sequence[Step], rules: RunRules) -> bool:
    """Whether a run has seen passes without gradients come again, if they are part of the user's own training.

    The user's own run, which decides that, goes on for some steps if it has seen any, also before its first step.
    """
    if rules.is_evaluated is None:
        is_wanted = any(step.evaluation_seconds > 0 for step in steps) and len(steps) < _LONG_ENOUGH
    else:
        is_wanted = rules.is_evaluated
    return not is_wanted or times_evaluated(steps) >= _FEWEST


def counts_evaluation(steps: Sequence[Step], rules: RunRules) -> bool:
    """Whether passes without gradients are part of these steps."""
    if rules.measurement.count_evaluation:
        return True
    return shows_evaluation(steps) if rules.is_evaluated is None else rules.is_evaluated


def never_evaluated(steps: Sequence[Step], rules: RunRules) -> Failed | None:
    """The outcome of a run that ended before any passes without gradients, where they are part of training."""
    if not rules.is_evaluated or any(step.evaluation_seconds > 0 for step in steps):
        return None
    return Failed(
        reason="no_metrics",
        message="passes without gradients take a part of your training, and this run ended before it did any. Raise "
        "measurement.max_seconds or measurement.max_steps.",
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
    for begin, end in itertools.pairwise([*begins, len(steps)]):
        is_whole = end < len(steps)
        length = end - begin if is_whole else max(length, end - begin)
        for index in range(begin, end):
            own[index] += steps[begin].evaluation_seconds / length
    return own
