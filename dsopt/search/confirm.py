"""Which configuration is best, how much faster than the baseline, and how sure that is, from alternating rounds."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.unconfirmed import failed_finalists, unconfirmed
from dsopt.study.launch_noise import CONFIRMED, STEPS_UNTOLD

_USUAL_QUANTILE: Final = 3.0  # of Student's t, in the half-width of a run that ended when it was precise
# Noise may exceed the usual by any of these factors: mostly it is about as usual, and now and then far from it.
_FACTORS: Final = 2.0 ** np.linspace(-0.5, 5.0, 23)
_BELIEF: Final = np.exp(-((np.log2(_FACTORS) / 2.5) ** 2)) / (1.0 + np.log2(_FACTORS) ** 2)
_NEAR: Final = 1.0  # standard deviations that a finalist may lie behind the best
_OUT_OF_IT: Final = 0.02  # probability of being the best below which a configuration is not measured again
_NEGLIGIBLE: Final = 0.005  # expected loss that is not worth another round
_DRAWS: Final = 8000
_HALVINGS: Final = 50  # leaves 1e-13 of the range in which a quantile is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a study's confirmation.

    Attributes:
        best: name of the best configuration; `baseline` if no finalist was faster.
        value: its metric, the geometric mean over its confirmation runs, weighted by their precision.
        baseline: the baseline's metric, likewise; None if the user's configuration does not run.
        speedup: how many times the baseline the best is; 1 if it is the baseline itself, None without a baseline.
        interval: the 95 % interval of `speedup`; None if it is not known.
        runs: confirmation runs that were measured.
        probability: that the best is the fastest of those confirmed; None without a confirmation.
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
    """How many times as good one confirmed configuration is as another: above 1 is better, whatever the metric.

    `interval` is the 95 % interval of `factor`.
    """

    factor: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the confirmation says of k configurations, by logarithms of the metric, larger being better.

    Attributes:
        names: of the configurations.
        means: estimates, `(k,)`.
        covariance: of the estimates, `(k, k)`, for noise as usual.
        noise: probability of each of `_FACTORS`, by which standard deviations may be larger than usual.
        runs: confirmation runs behind it.
    """

    names: Sequence[str]
    means: NDArray[np.float64]
    covariance: NDArray[np.float64]
    noise: NDArray[np.float64]
    runs: int

    @property
    def best(self) -> str:
        """The configuration with the best estimate."""
        return self.names[int(np.argmax(self.means))]

    def ratio(self, name: str, other: str) -> Ratio:
        """How many times as good as another a configuration is."""
        contrast = np.zeros(len(self.names))
        contrast[self.names.index(name)] += 1.0
        contrast[self.names.index(other)] -= 1.0
        return self._exponential(contrast)

    def level(self, name: str) -> Ratio:
        """How good a configuration is in itself: its metric, or the inverse of a metric of which less is better."""
        contrast = np.zeros(len(self.names))
        contrast[self.names.index(name)] = 1.0
        return self._exponential(contrast)

    def _exponential(self, contrast: NDArray[np.float64]) -> Ratio:
        estimate = float(contrast @ self.means)
        half = _quantile(self.noise) * math.sqrt(contrast @ self.covariance @ contrast)
        return Ratio(factor=math.exp(estimate), interval=(math.exp(estimate - half), math.exp(estimate + half)))

    def certainty(self) -> tuple[dict[str, float], float]:
        """Each configuration's probability of being the best, and the expected loss from choosing the apparent best.

        By simulation from the posterior, seeded.
        """
        random = np.random.default_rng(0)
        scale = random.choice(_FACTORS, _DRAWS, p=self.noise)
        normal = random.multivariate_normal(np.zeros(len(self.names)), self.covariance, _DRAWS, method="eigh")
        draws = self.means + scale[:, None] * normal
        wins = np.bincount(draws.argmax(axis=1), minlength=len(self.names)) / _DRAWS
        regret = float(np.mean(draws.max(axis=1) - draws[:, int(np.argmax(self.means))]))
        return dict(zip(self.names, wins.tolist(), strict=True)), regret


def compare(history: History) -> Comparison | None:
    """Compares the confirmed configurations; None if nothing was measured at all, or the confirmation failed."""
    if unconfirmed(history) is not None:
        return None
    standing = standing_after(history, without=failed_finalists(history))
    baseline = history.find(BASELINE)
    if standing is None or set(standing.names) == {BASELINE}:
        if baseline is None or baseline.value is None:
            return None
        return Comparison(
            best=BASELINE, value=baseline.value, baseline=baseline.value, speedup=1.0, interval=None, runs=0
        )
    best = standing.best
    chances, regret = standing.certainty()
    metrics = {name: math.exp(_sign(history) * mean) for name, mean in zip(standing.names, standing.means, strict=True)}
    ratio = standing.ratio(best, BASELINE) if BASELINE in metrics and best != BASELINE else None
    return Comparison(
        best=best,
        value=metrics[best],
        baseline=metrics.get(BASELINE),
        speedup=ratio.factor if ratio else 1.0 if best == BASELINE else None,
        interval=ratio.interval if ratio else None,
        runs=standing.runs,
        probability=chances[best],
        regret=regret,
    )


def confirmed_ratio(history: History, name: str, other: str) -> Ratio | None:
    """How many times as good as `other` a configuration is, by the confirmation; None unless both were in it."""
    standing = standing_after(history)
    if standing is None or not {name, other} <= set(standing.names):
        return None
    return standing.ratio(name, other)


def launch_half_width(history: History) -> float:
    """Half-width of the 95 % interval of the logarithm of a ratio of two launches, without noise of their steps."""
    standing = standing_after(history)
    noise = standing.noise if standing else _noise(0.0, 0)
    return _quantile(noise) * CONFIRMED * math.sqrt(2)


def may_be_best(history: History, observation: Observation, best: Observation) -> bool:
    """Whether a run of the search is so near the best one that noise alone may explain their order."""
    gap = _score(history, best) - _score(history, observation)
    return gap <= _NEAR * math.hypot(_deviation(observation), _deviation(best))


def contenders(
    history: History, names: Sequence[str], rounds: int, certainty: float, share_of_training: float | None = None
) -> list[str]:
    """Which configurations to measure again after so many rounds; none when it is clear which is best.

    That is clear when the best has this probability of being the best, or when more measurements can gain hardly
    anything: the expected loss is below half a per cent, or below the share of the training that the runs take.

    Args:
        share_of_training: the share that a run takes, if runs must pay for themselves.
    """
    standing = standing_after(history, rounds, without=failed_finalists(history))
    if standing is None:
        return []
    chances, regret = standing.certainty()
    left = [name for name in names if chances.get(name, 0.0) >= _OUT_OF_IT]
    least = _NEGLIGIBLE if share_of_training is None else share_of_training * len(left)
    return [] if chances[standing.best] >= certainty or regret < least else left


def standing_after(history: History, rounds: int | None = None, *, without: Collection[str] = ()) -> Standing | None:
    """What the first rounds of the confirmation say, or all of them, about all configurations but those in `without`.

    None if nothing was confirmed.

    The model: the logarithm of the metric is configuration + round + noise (a two-way layout without interaction). It
    is fitted by least squares, with each run weighted by the precision of its steps and by how much launches usually
    differ. So drift between rounds cancels out, and the residuals contain everything that differs between two launches
    of one configuration: they show how much larger than usual the noise is. For this the finalists' runs of the search
    count as another round, but not for the means, because those runs are what the finalists were chosen by.
    """
    runs = [
        o
        for o in history.reference
        if o.round >= 1 and o.value is not None and o.round <= (rounds or o.round) and o.name not in without
    ]
    if not runs:
        return None
    names = list(dict.fromkeys(run.name for run in runs))
    means, covariance, _, _ = _layout(history, names, runs)
    first = [run for name in names if (run := _first_run(history, name)) is not None]
    _, _, squares, freedom = _layout(history, names, [*first, *runs])
    return Standing(
        names=names,
        means=means,
        covariance=covariance,
        noise=_noise(squares, freedom),
        runs=len(runs),
    )


def _layout(
    history: History, names: Sequence[str], runs: Sequence[Observation]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float, int]:
    """The two-way layout: estimates `(k,)`, their covariance `(k, k)`, the sum of squared residuals, its freedom."""
    numbers = sorted({run.round for run in runs})
    scores = np.array([_score(history, run) for run in runs])
    weights = np.array([_deviation(run) ** -2 for run in runs])
    design = np.array(
        [
            [*(float(run.name == name) for name in names), *_round_columns(numbers.index(run.round), len(numbers))]
            for run in runs
        ]
    )
    covariance = np.linalg.pinv((design.T * weights) @ design)
    estimates = covariance @ (design.T @ (weights * scores))
    squares = float(weights @ (scores - design @ estimates) ** 2)
    count = len(names)
    return estimates[:count], covariance[:count, :count], squares, len(runs) - int(np.linalg.matrix_rank(design))


def _noise(squares: float, freedom: int) -> NDArray[np.float64]:
    """Probability of each factor of the noise, after residuals with this sum of squares, relative to usual noise."""
    weights = _BELIEF * _FACTORS**-freedom * np.exp(-0.5 * squares / _FACTORS**2)
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities


def _quantile(noise: NDArray[np.float64]) -> float:
    """The 97.5 % quantile of a Gaussian whose standard deviation is one of `_FACTORS`, with these probabilities."""
    low, high = 0.1, 100.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = sum(p * math.erfc(-middle / (f * math.sqrt(2))) / 2 for p, f in zip(noise, _FACTORS, strict=True))
        low, high = (middle, high) if below < 0.975 else (low, middle)
    return high


def _first_run(history: History, name: str) -> Observation | None:
    """A configuration's run before the confirmation."""
    measured = (o for o in history.measured if o.name == name and o.imported is None)
    found = history.find(name) or next(measured, None)
    return found if found is not None and found.value is not None else None


def _round_columns(index: int, count: int) -> list[float]:
    """A round's effect, of effects that sum to zero."""
    return [-1.0] * (count - 1) if index == count - 1 else [float(index == other) for other in range(count - 1)]


def _deviation(observation: Observation) -> float:
    """Relative standard deviation of one run's figure, from its steps and from launches."""
    within = STEPS_UNTOLD if observation.half_width is None else observation.half_width / _USUAL_QUANTILE
    return math.hypot(within, CONFIRMED)


def _score(history: History, observation: Observation) -> float:
    assert observation.value is not None
    return _sign(history) * math.log(observation.value)


def _sign(history: History) -> float:
    return 1.0 if history.maximize else -1.0
