"""Which configuration is best, how much faster than the baseline, and how sure that is, from all runs together."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dsopt.optuna.normal import expected_improvement, ndtr
from dsopt.search.believed import Believed
from dsopt.search.by_runs import ByRuns
from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History
from dsopt.search.nodes import NodeEffect, effects_by_runs_alone
from dsopt.search.posterior import Scores, chances, interval
from dsopt.search.speed import metric_of
from dsopt.search.speeds import FACTORS, Speeds, launches_by
from dsopt.search.unconfirmed import unconfirmed
from dsopt.study.launch_noise import USUAL
from dsopt.study.spec import StudySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a study.

    Attributes:
        best: name of the best configuration; `baseline` if none is faster.
        value: its metric, as all runs and the models have it together.
        baseline: the baseline's metric, likewise; None if the user's configuration does not run.
        speedup: how many times the baseline the best is; 1 if it is the baseline itself, None without a baseline.
        interval: the 95 % interval of `speedup`; None if it is not known.
        runs: launches that were measured, of all configurations that might be the best.
        probability: that the best is the fastest of those; None if there is no other.
        regret: the expected loss from choosing it, relative: 0.002 is 0.2 %.
    """

    best: str
    value: float
    baseline: float | None
    speedup: float | None
    interval: tuple[float, float] | None
    runs: int
    probability: float | None = None
    regret: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as good one configuration is as another: above 1 is better, whatever the metric.

    `interval` is the 95 % interval of `factor`.
    """

    factor: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of the scores of k configurations, for each of f values of how much launches differ.

    Attributes:
        names: of the configurations.
        probabilities: of those values, `(f,)`.
        scores: of the configurations, for each value.
        usual: of the configurations, for the most probable difference between launches.
        runs: launches that were measured.
        nodes: how much faster or slower each node is than usual; the scores are as usual nodes would show them.
        elsewhere: the same of figures that no run of this study has shown.
    """

    names: Sequence[str]
    probabilities: NDArray[np.float64]
    scores: Sequence[Scores]
    usual: Scores
    runs: int
    nodes: Mapping[str, NodeEffect]
    elsewhere: Mapping[str, NodeEffect] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The configuration with the best estimate."""
        return self.names[int(np.argmax(self.usual.mean))]

    def among(self, names: Collection[str]) -> "Standing | None":
        """The same of some of the configurations; None if it has none of them."""
        kept = [index for index, name in enumerate(self.names) if name in names]
        if not kept:
            return None
        found, scores = [self.names[index] for index in kept], [each.take(kept) for each in self.scores]
        return replace(self, names=found, scores=scores, usual=self.usual.take(kept))

    def ratio(self, name: str, other: str) -> Ratio:
        """How many times as good as another a configuration is."""
        pair = self.names.index(name), self.names.index(other)
        return self._exponential(self.usual.difference(*pair)[0], [each.difference(*pair) for each in self.scores])

    def chance(self, name: str, other: str) -> float:
        """The probability that a configuration is better than another."""
        pair = self.names.index(name), self.names.index(other)
        means, deviations = np.array([each.difference(*pair) for each in self.scores]).T
        return float(self.probabilities @ ndtr(means / deviations))

    def gain(self, name: str, other: str) -> float:
        """What is gained on average over `other` by who may choose a configuration once it is better, relative."""
        pair = self.names.index(name), self.names.index(other)
        means, deviations = np.array([each.difference(*pair) for each in self.scores]).T
        return float(self.probabilities @ expected_improvement(means, deviations, 0.0))

    def level(self, name: str) -> Ratio:
        """How good a configuration is in itself: its metric, or the inverse of a metric of which less is better."""
        index = self.names.index(name)
        found = [(float(each.mean[index]), math.sqrt(float(each.variance[index]))) for each in self.scores]
        return self._exponential(float(self.usual.mean[index]), found)

    def certainty(self) -> tuple[dict[str, float], float]:
        """Each configuration's probability of being the best, and the expected loss from choosing the apparent best."""
        wins, regret = chances(self.probabilities, self.scores, self.names.index(self.best))
        return dict(zip(self.names, wins.tolist(), strict=True)), regret

    def _exponential(self, estimate: float, found: Sequence[tuple[float, float]]) -> Ratio:
        means, deviations = (np.array(part) for part in zip(*found, strict=True))
        low, high = interval(self.probabilities, means, deviations)
        return Ratio(factor=math.exp(estimate), interval=(math.exp(low), math.exp(high)))


def compare(spec: StudySpec, history: History) -> Comparison | None:
    """The result of a study; None if nothing was measured at all, or what was best failed when it ran again."""
    if unconfirmed(history) is not None:
        return None
    standing = standing_of(spec, history)
    ran_here = {o.name for o in history.everything if o.state == "measured" and o.is_spent}
    standing = standing.among({*ran_here, BASELINE}) if standing is not None else None
    if standing is None:
        return None
    best = standing.best
    metrics = {
        name: metric_of(spec, float(mean)) for name, mean in zip(standing.names, standing.usual.mean, strict=True)
    }
    if len(metrics) == 1 and best == BASELINE:
        return Comparison(best=best, value=metrics[best], baseline=metrics[best], speedup=1.0, interval=None, runs=0)
    wins, regret = standing.certainty()
    ratio = standing.ratio(best, BASELINE) if BASELINE in metrics and best != BASELINE else None
    return Comparison(
        best=best,
        value=metrics[best],
        baseline=metrics.get(BASELINE),
        speedup=ratio.factor if ratio else 1.0 if best == BASELINE else None,
        interval=ratio.interval if ratio else None,
        runs=standing.runs,
        probability=wins[best],
        regret=regret,
    )


def ratio_of(spec: StudySpec, history: History, name: str, other: str) -> Ratio | None:
    """How many times as good as `other` a configuration is; None unless both may be chosen."""
    standing = standing_of(spec, history)
    if standing is None or not {name, other} <= set(standing.names):
        return None
    return standing.ratio(name, other)


def standing_of(spec: StudySpec, history: History) -> Standing | None:
    """What is known of everything that may be chosen; None if nothing may."""
    known = history.learnt.get(Standing)
    runs = [(o.name, o.round, o.state, o.value) for o in history.everything]
    if isinstance(known, _Kept) and known.runs == runs:
        return known.standing
    facts = history.facts_for(spec)
    standing = _of_runs(spec, history) if spec.compare else None
    if facts is not None and not spec.compare:
        standing = _of_search(spec, facts, history)
    history.learnt[Standing] = _Kept(runs=runs, standing=standing)
    return standing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """The standing after these runs: whoever shows a study asks for it several times."""

    runs: Sequence[tuple[str, int, str, float | None]]
    standing: Standing | None


def _of_search(spec: StudySpec, facts: ModelFacts, history: History) -> Standing | None:
    """By runs and the step-time model together."""
    believed = Believed(spec, facts, history)
    if not believed.winners:
        return None
    shown = [believed.shown[index] for index in believed.winners]
    return Standing(
        names=[each.name for each in shown],
        probabilities=believed.speeds.launches,
        scores=[believed.of_known(USUAL * factor).take(believed.winners) for factor in FACTORS],
        usual=believed.scores.take(believed.winners),
        runs=sum(each.launches for each in shown),
        nodes=believed.nodes,
        elsewhere=believed.elsewhere,
    )


def _of_runs(spec: StudySpec, history: History) -> Standing | None:
    """By runs alone: configurations of a comparison need have nothing in common."""
    speeds = Speeds(spec, None, history)
    winners = [index for index, each in enumerate(speeds.shown) if each.may_win]
    if not winners:
        return None
    nodes = effects_by_runs_alone(speeds.shown, speeds.behind)
    runs = ByRuns(speeds.shown, nodes)
    scores, evidence = zip(*(runs.at(USUAL * factor) for factor in FACTORS), strict=True)
    launches, kept = launches_by(evidence), [each.take(winners) for each in scores]
    return Standing(
        names=[speeds.shown[index].name for index in winners],
        probabilities=launches,
        scores=kept,
        usual=kept[int(np.argmax(launches))],
        runs=sum(len(speeds.shown[index].scores) for index in winners),
        nodes=nodes,
    )
