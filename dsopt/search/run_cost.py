"""What a run takes, as far as those that have ended show it."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.search.facts import ModelFacts
from dsopt.search.grid import Grid
from dsopt.search.history import History, Observation
from dsopt.search.speed import log_score, log_work
from dsopt.study.simulation import DRY_START_SECONDS
from dsopt.study.spec import StudySpec
from dsopt.study.step_noise import StepNoise

Array = NDArray[np.float64]

# What is assumed before a run has ended: seconds until its first step, and of it all.
_START: Final = 20.0
_WHOLE: Final = 60.0
_LONG: Final = 100  # steps whose mean shows the variance of one, correlation included
# A run has at least so many steps after its warm-up, and at most so many.
_STEPS: Final = (12, 300)


class RunCost:
    """What a run takes.

    Attributes:
        mean_seconds: of a run so far.
        start_seconds: until its first step, and after its last.
        unit: seconds that a step takes, in the metric's terms.
    """

    def __init__(self, spec: StudySpec, facts: ModelFacts, history: History) -> None:
        runs = [o for o in history.everything if o.seconds is not None and o.launched]
        timed = [o for o in runs if o.step_seconds and o.steps and o.facts is not None]
        self._warmup = spec.autotuning.start_profile_step
        self.mean_seconds = float(np.mean([whole_seconds(spec, o) for o in runs])) if runs else _WHOLE
        self.start_seconds, self.unit = min(_START, self.mean_seconds), 1.0
        if timed:
            self.start_seconds = float(np.median([_beside_steps(spec, o) for o in timed]))
            self.unit = float(np.median([_unit(spec, facts, o) for o in timed]))

    def of(self, step_seconds: Array, noise: StepNoise, spread: float) -> tuple[Array, Array]:
        """The variance that the steps of a run leave, and what it takes in runs of mean length; shapes `(n,)`.

        It has as many steps as are worth their time: further ones would lower its own variance by less than another
        launch (the square-root rule; Cochran, Sampling Techniques, chapter 10).

        Args:
            step_seconds: of n candidates, shape `(n,)`.
            noise: of steps.
            spread: variance between launches of different candidates, which no number of steps lowers.
        """
        one = noise.of_mean(_LONG) ** 2 * _LONG
        before = self.start_seconds + self._warmup * step_seconds
        steps = np.clip(np.sqrt(before * one / (step_seconds * spread)), *_STEPS)
        return one / steps, (before + steps * step_seconds) / self.mean_seconds


def whole_seconds(spec: StudySpec, o: Observation) -> float:
    """What a run took; of a dry run, which is over at once, what it stands for: a start, and its steps."""
    return DRY_START_SECONDS + _in_steps(o) if spec.is_simulated else o.seconds or 0.0


def _beside_steps(spec: StudySpec, o: Observation) -> float:
    return max(1.0, whole_seconds(spec, o) - _in_steps(o))


def _in_steps(o: Observation) -> float:
    return o.steps * (o.step_seconds or 0.0)


def _unit(spec: StudySpec, facts: ModelFacts, o: Observation) -> float:
    """Seconds of a step ÷ what the metric says that it takes."""
    value = o.value if o.value is not None else o.value_so_far
    assert o.facts is not None
    candidate = o.candidate if o.candidate is not None else o.facts.candidate()
    work = float(log_work(spec, facts, Grid.of([candidate]))[0])
    score = float(log_score(spec, np.array([value], dtype=float))[0])
    return (o.step_seconds or 0.0) / float(np.exp(work - score))
