"""What the models predict for candidates that have not run: how fast, how sure, and how likely they fit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.optuna.worth import expected_improvement
from dsopt.search.cost_model import CostModel
from dsopt.search.facts import ModelFacts
from dsopt.search.grid import Grid
from dsopt.search.history import History, Observation
from dsopt.search.memory import MemoryModel
from dsopt.search.speed import log_score, log_work, metric_of
from dsopt.search.step_features import Prior
from dsopt.search.steptime import StepTimeModel, Timed
from dsopt.study.launch_noise import SEARCHED, STEPS_UNTOLD
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec

Array = NDArray[np.float64]

# A run out of memory costs as much as this improvement is worth; only its time if runs must pay for themselves.
_OOM_PRICE: Final = 0.015
# How much the coefficients of step times differ between studies of one script (standard deviation of logarithms).
_SAME_DEVICES: Final = 0.15
_OTHER_DEVICES: Final = 0.5
_EARLIER_WEIGHT: Final = 0.3  # of a run of an earlier study, in the cost model
# Another tuner's figures cover a few steps without data loading.
_IMPORTED_DEVIATION: Final = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The prediction for n candidates; all arrays have shape `(n,)`.

    Attributes:
        grid: the candidates.
        score: expected score (`search/speed.py`).
        deviation: its standard deviation, which is relative to the metric.
        fits: probability that the candidate fits the device.
        gain: expected improvement over the best so far, relative, if it fits.
        oom_price: the improvement that a run out of memory costs.
    """

    grid: Grid
    score: Array
    deviation: Array
    fits: Array
    gain: Array
    oom_price: float

    @property
    def worth(self) -> Array:
        """Expected improvement × probability of fitting, less the price of an OOM × its probability."""
        return self.gain * self.fits - self.oom_price * (1 - self.fits)

    def why(self, index: int, best: float) -> str:
        """Why it is worth a run, for people: `predicted 6.0 % faster than the best, ± 8.0; 93 % likely to fit`."""
        over, spread = math.expm1(float(self.score[index]) - best) * 100, self.deviation[index] * 196
        could = ": could still win" if over < 0 < over + spread else ""
        return (
            f"predicted {abs(over):.1f} % {'slower' if over < 0 else 'faster'} than the best, ± {spread:.1f}{could}; "
            f"{100 * self.fits[index]:.0f} % likely to fit"
        )


class Forecast:
    """Predicts candidates from everything that a study, and earlier ones, have shown.

    The step-time model is the prior mean, the cost model learns what it leaves unexplained, the memory model says what
    fits. Running candidates count as if they had come out as predicted (the "kriging believer" of Ginsbourger et al.,
    2010), so that parallel workers try different candidates.
    """

    def __init__(self, spec: StudySpec, facts: ModelFacts, history: History) -> None:
        self._spec = spec
        self._facts = facts
        self._earlier: Forecast | None = None
        if history.begun_with is not None:
            known, of_it = history.begun_with
            self._earlier = Forecast(known.spec, of_it, known.history)
        self.memory = MemoryModel(spec, facts, history)
        self._runs = [run for o in history.everything if (run := _run(o, is_own=o is history.telling_run)) is not None]
        own_seconds = self._own_seconds()
        measured = self._timed(self._runs)
        self._prior = self._from_earlier(own_seconds)
        self.steptime = StepTimeModel(spec, facts, own_seconds, measured, self._prior)
        self._cost = self._fitted_cost(measured)
        self.best = self._best()
        running = [o.candidate for o in history.observations if o.state == "running" and o.candidate is not None]
        if running:
            self._believe(measured, running, own_seconds)

    def of(self, candidates: Sequence[Candidate]) -> Outlook:
        """The outlook of candidates, of any stages."""
        grid = Grid.of(candidates)
        score, deviation = self._score(grid)
        gain = expected_improvement(score, deviation, self.best)  # of logarithms: relative to the best
        return Outlook(
            grid=grid,
            score=score,
            deviation=deviation,
            fits=self.memory.fit_probability(grid),
            gain=np.maximum(gain, 0.0),
            oom_price=0.0 if self._spec.stop_when == "payback" else _OOM_PRICE,
        )

    def metric(self, score: float) -> float:
        """The metric that has this score."""
        return metric_of(self._spec, score)

    def _score(self, grid: Grid) -> tuple[Array, Array]:
        mean, deviation = self.steptime.predict(grid)
        residual, spread = self._cost.predict(grid)
        total = np.sqrt(deviation**2 + spread**2 + self.steptime.discrepancy**2)
        return log_work(self._spec, self._facts, grid) - mean - residual, total

    def _from_earlier(self, own_seconds: float) -> Prior | None:
        """What the last earlier study has shown, at the speed of this one's own run."""
        own = next((run.candidate for run in self._runs if run.is_own), None)
        if self._earlier is None or own is None:
            return None
        expected, _ = self._earlier.steptime.predict(Grid.of([own]))
        theirs, ours = self._earlier.memory.facts, self._facts
        alike = (theirs.world_size, theirs.device_memory_bytes) == (ours.world_size, ours.device_memory_bytes)
        spread = _SAME_DEVICES if alike else _OTHER_DEVICES
        return self._earlier.steptime.passed_on(math.log(own_seconds) - float(expected[0]), spread)

    def _own_seconds(self) -> float:
        """The step time of the run that the facts are from, in the metric's terms."""
        own = next((run for run in self._runs if run.is_own), None)
        if own is None:
            return 1.0
        work = log_work(self._spec, self._facts, Grid.of([own.candidate]))[0]
        return math.exp(float(work) - float(log_score(self._spec, np.array([own.value]))[0]))

    def _timed(self, runs: "Sequence[_Run]") -> Timed:
        grid = Grid.of([run.candidate for run in runs])
        scores = log_score(self._spec, np.array([run.value for run in runs], dtype=float))
        return Timed(
            grid=grid,
            log_seconds=log_work(self._spec, self._facts, grid) - scores,
            deviation=np.array([run.deviation for run in runs], dtype=float),
        )

    def _fitted_cost(self, measured: Timed) -> CostModel:
        residuals = self._residuals(measured)
        grid, weights = measured.grid, np.ones(len(residuals))
        if self._earlier is not None:
            known = self._earlier._timed(self._earlier._runs)
            left_there = self._earlier._residuals(known)
            grid = Grid.of([*grid.candidates, *known.grid.candidates])
            residuals = np.concatenate([residuals, left_there])
            weights = np.concatenate([weights, np.full(len(left_there), _EARLIER_WEIGHT)])
        return CostModel(grid, residuals, weights)

    def _residuals(self, measured: Timed) -> Array:
        """What the step-time model leaves over of these runs."""
        expected, _ = self.steptime.predict(measured.grid)
        return measured.log_seconds - expected

    def _best(self) -> float:
        """The best measured score, each shrunk towards the model's prediction, the more so the noisier its run was.

        Otherwise the luckiest of many noisy runs would seem hard to beat.
        """
        if not self._runs:  # the user's own, as the priors have it
            own = self._facts.candidate()
            return float(self._score(Grid.of([own]))[0][0])
        measured = self._timed(self._runs)
        expected, deviation = self._score(measured.grid)
        scores = log_work(self._spec, self._facts, measured.grid) - measured.log_seconds
        trust = deviation**2 / (deviation**2 + measured.deviation**2)
        return float(np.max(expected + trust * (scores - expected)))

    def _believe(self, measured: Timed, running: Sequence[Candidate], own_seconds: float) -> None:
        grid = Grid.of([*measured.grid.candidates, *running])
        expected, _ = self.steptime.predict(Grid.of(running))
        self.steptime = StepTimeModel(
            self._spec,
            self._facts,
            own_seconds,
            Timed(
                grid=grid,
                log_seconds=np.concatenate([measured.log_seconds, expected]),
                deviation=np.concatenate([measured.deviation, np.full(len(running), STEPS_UNTOLD)]),
            ),
            self._prior,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A run with a figure: its candidate (for the baseline, with the user's own knobs), and how sure the figure is.

    `is_own`: whether it is the run that shows model and devices.
    """

    candidate: Candidate
    value: float
    deviation: float
    is_own: bool


def _run(observation: Observation, *, is_own: bool) -> _Run | None:
    """What a run shows of speed, if anything; `search/confirm.py` judges confirmation runs."""
    value = observation.value if observation.value is not None else observation.value_so_far
    if value is None or value <= 0 or observation.round:
        return None
    candidate = observation.candidate
    if candidate is None:
        if observation.facts is None:
            return None
        candidate = observation.facts.candidate()
    deviation = STEPS_UNTOLD if observation.half_width is None else observation.half_width / 2
    if observation.imported is not None:
        deviation = _IMPORTED_DEVIATION
    return _Run(candidate=candidate, value=value, deviation=math.hypot(deviation, SEARCHED), is_own=is_own)
