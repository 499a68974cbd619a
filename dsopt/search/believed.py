"""What is believed of the speed of configurations that have run, by their runs and by the step-time model together."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.search.facts import ModelFacts
from dsopt.search.grid import Grid
from dsopt.search.history import History
from dsopt.search.link_prior import link_prior
from dsopt.search.nodes import Expected, NodeEffect, node_effects, without
from dsopt.search.places import is_elsewhere
from dsopt.search.posterior import Scores
from dsopt.search.speed import log_work
from dsopt.search.speeds import Shown, Speeds
from dsopt.search.step_features import Prior
from dsopt.search.steptime import StepTimeModel, Timed
from dsopt.study.launch_noise import USUAL
from dsopt.study.spec import StudySpec

Array = NDArray[np.float64]

# How much the coefficients of step times differ between studies of one script (standard deviation of logarithms).
_SAME_DEVICES: Final = 0.15
_OTHER_DEVICES: Final = 0.5
_FEW: Final = 100  # configurations; of more, none moves the model much
_ROUNDS: Final = 2  # of fitting the model and the effects of nodes in turn


class Believed:
    """The scores of configurations, as one Gaussian.

    The step-time model says what they have in common. Each also has a discrepancy of its own, of which its runs tell.

    Attributes:
        speeds: what runs show, as if all of them had gone on usual nodes.
        nodes: how much faster or slower each node is than usual; empty if there was one node only.
        elsewhere: the same of places where other studies, or other tuners, have measured.
        shown: the speeds of each configuration; running ones are believed to come out as predicted.
        launch: how much launches differ.
        steptime: the model.
        scores: of each of `shown`.
        winners: indices of what may be chosen.
    """

    shown: list[Shown]

    def __init__(self, spec: StudySpec, facts: ModelFacts, history: History) -> None:
        self.spec, self.facts = spec, facts
        self.earlier: Believed | None = None
        if history.begun_with is not None:
            known, of_it = history.begun_with
            self.earlier = Believed(known.spec, of_it, known.history)
        telling = history.telling_run
        self._links = link_prior(spec, facts, telling.node_rates if telling is not None else {})
        effects: dict[str, NodeEffect] = {}
        seen = Speeds(spec, facts, history)
        self._take(seen)
        if len(seen.nodes) > 1 or seen.nodes != seen.places:
            for _ in range(_ROUNDS):
                effects = node_effects(seen.shown, self._expected_of_weights(), seen.behind)
                self._take(seen.corrected(without(seen.shown, effects)))
        self.nodes = {name: effect for name, effect in effects.items() if not is_elsewhere(name)}
        self.elsewhere = {name: effect for name, effect in effects.items() if is_elsewhere(name)}
        self._look()

    def believe(self, running: Sequence[Shown]) -> None:
        """Takes runs that go on as if they had come out as predicted ("kriging believer"; Ginsbourger et al., 2010)."""
        known = {shown.name: shown for shown in self.shown}
        for run in running:
            same = known.get(run.name)
            if same is not None:
                run = replace(
                    same,
                    scores=[*same.scores, *run.scores],
                    variances=[*same.variances, *run.variances],
                    ran_on=[*same.ran_on, *run.ran_on],
                    orders=[*same.orders, math.inf],
                )
            known[run.name] = run
        self.shown = list(known.values())
        self.steptime = self._model()
        self._look()

    def of_new(self, grid: Grid) -> Scores:
        """The scores of candidates that have not run."""
        return self._expected(grid, self.launch)

    def of_known(self, launch: float) -> Scores:
        """The scores of what has run, if launches differ by this standard deviation."""
        expected = self._expected(Grid.of([shown.candidate for shown in self.shown]), launch)
        seen = np.array([shown.mean(launch) for shown in self.shown], dtype=float).reshape(-1, 2)
        trust = expected.own / (expected.own + seen[:, 1])
        return Scores(
            mean=expected.mean + trust * (seen[:, 0] - expected.mean),
            common=expected.common * (1 - trust)[:, None],
            own=expected.own * (1 - trust),
        )

    def by_others(self, index: int) -> tuple[float, float]:
        """Mean and variance of the score of one configuration that has run, as all others let expect it.

        Among many, its own figure counts, too: it hardly matters.
        """
        others = self
        if len(self.shown) <= _FEW:
            others = copy.copy(self)
            others.shown = [shown for other, shown in enumerate(self.shown) if other != index]
            others.steptime = others._model()
        expected = others.of_new(Grid.of([self.shown[index].candidate]))
        return float(expected.mean[0]), float(expected.variance[0])

    def timed(self) -> Timed:
        """The step times of what has run, in the metric's terms."""
        grid = Grid.of([shown.candidate for shown in self.shown])
        seen = np.array([shown.mean(self.launch) for shown in self.shown], dtype=float).reshape(-1, 2)
        work = log_work(self.spec, self.facts, grid)
        return Timed(grid=grid, log_seconds=work - seen[:, 0], deviation=np.sqrt(seen[:, 1]))

    def residuals(self) -> tuple[Grid, Array]:
        """What the step-time model leaves over of what has run."""
        timed = self.timed()
        return timed.grid, timed.log_seconds - self.steptime.predict(timed.grid)[0]

    @property
    def best(self) -> int | None:
        """Index of what would be chosen now; None if nothing may be."""
        return max(self.winners, key=lambda index: self.scores.mean[index], default=None)

    @property
    def best_shown(self) -> Shown | None:
        """What would be chosen now, likewise."""
        return None if self.best is None else self.shown[self.best]

    def index_of(self, name: str) -> int | None:
        """Index of a configuration; None if it has no figure."""
        return next((index for index, shown in enumerate(self.shown) if shown.name == name), None)

    def _take(self, speeds: Speeds) -> None:
        """Takes what runs show, and fits the model to it."""
        self.speeds, self.launch = speeds, speeds.launch_deviation
        self.shown = speeds.shown
        self._own_seconds = _own_seconds(self.spec, self.facts, self.shown)
        self._prior = self._links | (self._from_earlier() or {})
        self.steptime = self._model()

    def _expected_of_weights(self) -> Expected:
        """What the model expects of the scores of what has run, and how that follows from its weights."""
        grid = Grid.of([shown.candidate for shown in self.shown])
        mean, slopes = self.steptime.linearised(grid)
        off, precision = self.steptime.prior
        return Expected(mean=log_work(self.spec, self.facts, grid) - mean, slopes=-slopes, off=off, precision=precision)

    def _look(self) -> None:
        self.scores = self.of_known(self.launch)
        self.winners = [index for index, shown in enumerate(self.shown) if shown.may_win]

    def _expected(self, grid: Grid, launch: float) -> Scores:
        deviation = np.sqrt([shown.mean(launch)[1] for shown in self.shown])
        mean, common = self.steptime.linear(grid, None if launch == self.launch else deviation)
        own = np.full(len(mean), self.steptime.discrepancy**2)
        return Scores(mean=log_work(self.spec, self.facts, grid) - mean, common=-common, own=own)

    def _model(self) -> StepTimeModel:
        return StepTimeModel(self.spec, self.facts, self._own_seconds, self.timed(), self._prior)

    def _from_earlier(self) -> Prior | None:
        """What the last earlier study has shown, at the speed of this one's own run."""
        own = next((shown.candidate for shown in self.shown if shown.is_own), None)
        if self.earlier is None or own is None:
            return None
        expected, _ = self.earlier.steptime.predict(Grid.of([own]))
        theirs, ours = self.earlier.facts, self.facts
        alike = (theirs.world_size, theirs.device_memory_bytes) == (ours.world_size, ours.device_memory_bytes)
        spread = _SAME_DEVICES if alike else _OTHER_DEVICES
        return self.earlier.steptime.passed_on(math.log(self._own_seconds) - float(expected[0]), spread)


def _own_seconds(spec: StudySpec, facts: ModelFacts, shown: Sequence[Shown]) -> float:
    """The step time of the run that the facts are from, in the metric's terms."""
    own = next((each for each in shown if each.is_own), None)
    if own is None:
        return 1.0
    return math.exp(float(log_work(spec, facts, Grid.of([own.candidate]))[0]) - own.mean(USUAL)[0])
