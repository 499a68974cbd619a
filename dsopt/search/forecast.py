"""What the models predict, and what a run would be worth: of candidates that have not run, and of those that have."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.protocol.text import significant
from dsopt.search.believed import Believed
from dsopt.search.cost_model import CostModel
from dsopt.search.disturbed import worth_if_disturbed
from dsopt.search.facts import ModelFacts
from dsopt.search.grid import Grid
from dsopt.search.history import History, Observation
from dsopt.search.memory import MemoryModel
from dsopt.search.posterior import Scores, worth_of_another, worth_of_first
from dsopt.search.run_cost import RunCost
from dsopt.search.speed import log_work, metric_of
from dsopt.search.speeds import Shown
from dsopt.study.launch_noise import STEPS_UNTOLD
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec

Array = NDArray[np.float64]

# A run out of memory costs as much as this improvement is worth; only its time if runs must pay for themselves, or as
# long as there is no answer that runs.
_OOM_PRICE: Final = 0.015
_SUSPECTS: Final = 4  # launches that may have been disturbed: those that are farthest below what is expected
_EARLIER_WEIGHT: Final = 0.3  # of a run of an earlier study, in the cost model


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The prediction for n candidates; all arrays have shape `(n,)`.

    Attributes:
        grid: the candidates.
        score: expected score (`search/speed.py`).
        deviation: its standard deviation, which is relative to the metric.
        fits: probability that the candidate fits the device.
        gain: what a run adds on average to the score of the best, if it fits.
        cost: what a run takes, in runs of mean length so far.
        oom_price: the improvement that a run out of memory costs.
    """

    grid: Grid
    score: Array
    deviation: Array
    fits: Array
    gain: Array
    cost: Array
    oom_price: float

    @property
    def worth(self) -> Array:
        """Gain × probability of fitting, less the price of an OOM × its probability, for what a run takes."""
        return (self.gain * self.fits - self.oom_price * (1 - self.fits)) / self.cost

    def why(self, index: int, best: float) -> str:
        """Why it is worth a run.

        `predicted 6.0 % faster than the best, ± 8.0; 93 % likely to fit; gains 3.1 % on average`
        """
        over, spread = math.expm1(float(self.score[index]) - best) * 100, self.deviation[index] * 196
        could = "" if over >= 0 else ": could still win" if over + spread > 0 else ": it would tell of others"
        gain = significant(100 * self.worth[index], 2)
        return (
            f"predicted {abs(over):.1f} % {'slower' if over < 0 else 'faster'} than the best, ± {spread:.1f}{could}; "
            f"{100 * self.fits[index]:.0f} % likely to fit; gains {gain} % on average"
        )


class Forecast:
    """Predicts candidates from everything that a study, and earlier ones, have shown.

    The step-time model is the prior mean, the cost model learns what it leaves unexplained, the memory model says what
    fits. Running candidates count as if they had come out as predicted, so that parallel workers try different ones.
    """

    def __init__(self, spec: StudySpec, facts: ModelFacts, history: History) -> None:
        self._spec = spec
        self._facts = facts
        self.memory = MemoryModel(spec, facts, history)
        self.believed = Believed(spec, facts, history)
        self._trees = self._fitted_trees()
        running = [shown for o in history.everything if (shown := self._expected(o)) is not None]
        self._going = {shown.name for shown in running}
        if running:
            self.believed.believe(running)
        self.cost = RunCost(spec, facts, history)

    def of(self, candidates: Sequence[Candidate]) -> Outlook:
        """The outlook of candidates, of any stages."""
        grid = Grid.of(candidates)
        return self._outlook(grid, self._corrected(grid))

    def _outlook(self, grid: Grid, scores: Scores) -> Outlook:
        """The outlook of first runs of candidates with these scores."""
        noise, cost = self._run_of(grid, scores)
        winners = self.believed.scores.take(self.believed.winners)
        if not self.believed.winners:  # the user's own, as the models have it
            guess = self.believed.of_new(Grid.of([self._facts.candidate()]))
            winners = Scores(mean=guess.mean, common=guess.common, own=guess.own)
        return Outlook(
            grid=grid,
            score=scores.mean,
            deviation=np.sqrt(scores.variance),
            fits=self.memory.fit_probability(grid),
            gain=worth_of_first(scores, winners, noise),
            cost=cost,
            oom_price=_OOM_PRICE if self._spec.stop_when != "payback" and self.believed.winners else 0.0,
        )

    def again(self) -> list[tuple[Shown, float]]:
        """What has run and may be chosen, with what another run of it adds on average, by its cost."""
        winners = [self.believed.shown[index] for index in self.believed.winners]
        if not winners:
            return []
        scores = self.believed.scores.take(self.believed.winners)
        noise, cost = self._run_of(Grid.of([shown.candidate for shown in winners]), scores)
        gains = worth_of_another(scores, noise)
        return [(shown, float(gain / taken)) for shown, gain, taken in zip(winners, gains, cost, strict=True)]

    def disturbed(self) -> list[tuple[Shown, float]]:
        """What was launched once, measured or stopped as too slow, with what another run adds if that was disturbed, by
        its cost. What goes on has no figure yet that could be."""
        believed, best = self.believed, self.believed.best
        once = [
            index
            for index, each in enumerate(believed.shown)
            if len(each.scores) == 1 and not each.is_own and (each.may_win or each.is_stopped)
            if each.name not in self._going
        ]
        if best is None or not once:
            return []
        grid, scores = Grid.of([believed.shown[index].candidate for index in once]), believed.scores.take(once)
        behind = believed.of_new(grid).mean - scores.mean
        suspect = np.argsort(-behind, kind="stable")[:_SUSPECTS]
        shown = [believed.shown[once[which]] for which in suspect]
        score, noise = np.array([each.mean(believed.launch) for each in shown]).T
        expected, variance = np.array([believed.by_others(once[which]) for which in suspect]).T
        gains = worth_if_disturbed(score, noise, expected, variance, float(believed.scores.mean[best]))
        cost = self._run_of(grid, scores)[1][suspect]
        return list(zip(shown, (gains / cost).tolist(), strict=True))

    def imported(self) -> list[tuple[Shown, float]]:
        """What only another tuner has measured, with what a first run of it adds on average, by its cost."""
        which = [index for index, shown in enumerate(self.believed.shown) if shown.is_to_measure]
        if not which:
            return []
        shown = [self.believed.shown[index] for index in which]
        outlook = self._outlook(Grid.of([each.candidate for each in shown]), self.believed.scores.take(which))
        return list(zip(shown, outlook.worth.tolist(), strict=True))

    @cached_property
    def best(self) -> float:
        """The score of what would be chosen now; of the user's own, as the models have it, if nothing has run."""
        index = self.believed.best
        if index is not None:
            return float(self.believed.scores.mean[index])
        return float(self.believed.of_new(Grid.of([self._facts.candidate()])).mean[0])

    def metric(self, score: float) -> float:
        """The metric that has this score."""
        return metric_of(self._spec, score)

    def _corrected(self, grid: Grid) -> Scores:
        """The scores of candidates that have not run, with what trees have learnt of residuals."""
        scores = self.believed.of_new(grid)
        residual, spread = self._trees.predict(grid)
        return replace(scores, mean=scores.mean - residual, own=scores.own + spread**2)

    def _run_of(self, grid: Grid, scores: Scores) -> tuple[Array, Array]:
        """The variance that a run of each candidate has, and what it takes, in runs of mean length."""
        seconds = self.cost.unit * np.exp(log_work(self._spec, self._facts, grid) - scores.mean)
        launch = self.believed.launch**2
        spread = launch + self.believed.steptime.discrepancy**2
        noise, cost = self.cost.of(seconds, self.believed.speeds.noise, spread)
        return launch + noise, cost

    def _expected(self, o: Observation) -> Shown | None:
        """A run that goes on, as if it had come out as predicted; None if it does not, or says nothing of speed."""
        if o.state != "running" or o.name == "profile":
            return None
        known = self.believed.index_of(o.name)
        if known is None and o.candidate is None:
            return None
        candidate = o.candidate or self.believed.shown[known or 0].candidate
        scores = self._corrected(Grid.of([candidate])) if known is None else self.believed.scores.take([known])
        return Shown(
            name=o.name,
            candidate=candidate,
            scores=[float(scores.mean[0])],
            variances=[STEPS_UNTOLD**2],
            ran_on=[()],
            orders=[math.inf],
            is_own=False,
            may_win=True,
        )

    def _fitted_trees(self) -> CostModel:
        grid, residuals = self.believed.residuals()
        weights = np.ones(len(residuals))
        if self.believed.earlier is not None:
            known, left_there = self.believed.earlier.residuals()
            grid = Grid.of([*grid.candidates, *known.candidates])
            residuals = np.concatenate([residuals, left_there])
            weights = np.concatenate([weights, np.full(len(left_there), _EARLIER_WEIGHT)])
        return CostModel(grid, residuals, weights)
