"""Which configuration is best, how much faster than the baseline, and how sure that is: from the interleaved rounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from dsopt.search.history import History

BASELINE = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a study's confirmation.

    Attributes:
        best: name of the best configuration; `baseline` when no finalist was faster.
        value: its metric, the geometric mean over its confirmation runs.
        baseline: the baseline's, likewise; None when the user's configuration does not run.
        speedup: how many times the baseline the best is; 1 when it is the baseline itself, None without one.
        interval: the 95 % interval of `speedup`; None when it cannot be told.
        runs: confirmation runs that were measured.
    """

    best: str
    value: float
    baseline: float | None
    speedup: float | None
    interval: tuple[float, float] | None
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as good one confirmed configuration is as another: above 1 is better, whatever the metric.

    `interval` is the 95 % interval of `factor`; None when it cannot be told.
    """

    factor: float
    interval: tuple[float, float] | None


def compare(history: History) -> Comparison | None:
    """Compares the confirmed configurations, or gives None when nothing was measured at all.

    The logarithm of the metric is taken as configuration + round + noise, a two-way layout without interaction. Its
    residuals hold all that differs between two launches of one configuration, so the interval is not only that of the
    steps within a run. Finalists' runs of the search do not count here: they were chosen by them.
    """
    values = _confirmed(history)
    baseline = history.find(BASELINE)
    if not any(name != BASELINE for name in values):
        if baseline is None or baseline.value is None:
            return None
        return Comparison(
            best=BASELINE, value=baseline.value, baseline=baseline.value, speedup=1.0, interval=None, runs=0
        )
    sign = 1.0 if history.maximize else -1.0
    means = {name: float(np.mean(list(rounds.values()))) for name, rounds in values.items()}
    best = max(means, key=lambda name: sign * means[name])
    runs = sum(len(rounds) for rounds in values.values())
    own = math.exp(means[BASELINE]) if BASELINE in means else None
    if best == BASELINE or own is None:
        speedup = None if own is None else 1.0
        return Comparison(
            best=best, value=math.exp(means[best]), baseline=own, speedup=speedup, interval=None, runs=runs
        )
    ratio = confirmed_ratio(history, best, BASELINE)
    assert ratio is not None
    return Comparison(
        best=best,
        value=math.exp(means[best]),
        baseline=own,
        speedup=ratio.factor,
        interval=ratio.interval,
        runs=runs,
    )


def confirmed_ratio(history: History, name: str, other: str) -> Ratio | None:
    """How many times as good as `other` a configuration is, by the confirmation; None when not both were in it."""
    values = _confirmed(history)
    if name not in values or other not in values:
        return None
    own, others = list(values[name].values()), list(values[other].values())
    difference = float(np.mean(own) - np.mean(others)) * (1.0 if history.maximize else -1.0)
    half = launch_half_width(history, len(own), len(others))
    interval = None if half is None else (math.exp(difference - half), math.exp(difference + half))
    return Ratio(factor=math.exp(difference), interval=interval)


def launch_half_width(history: History, runs: int, other_runs: int) -> float | None:
    """Half-width of the 95 % interval of the logarithm of a ratio between so many launches and so many others.

    From the differences between launches that the confirmation shows; None when it shows none.
    """
    error, freedom = _noise(list(_confirmed(history).values()))
    if freedom < 1:
        return None
    return float(stdtrit(freedom, 0.975)) * error * math.sqrt(1 / runs + 1 / other_runs)


def _confirmed(history: History) -> dict[str, dict[int, float]]:
    """The logarithm of the metric of every confirmation run, by configuration and round."""
    values: dict[str, dict[int, float]] = {}
    for run in history.reference:
        if run.round >= 1 and run.value is not None:
            values.setdefault(run.name, {})[run.round] = math.log(run.value)
    return values


def _noise(table: Sequence[dict[int, float]]) -> tuple[float, int]:
    """Standard deviation of one run around its configuration's mean and its round's effect, with degrees of freedom."""
    rounds = sorted({round_ for row in table for round_ in row})
    complete = [round_ for round_ in rounds if all(round_ in row for row in table)]
    if len(complete) < 2 or len(table) < 2:
        return 0.0, 0
    grid = np.array([[row[round_] for round_ in complete] for row in table])
    residuals = grid - grid.mean(axis=1, keepdims=True) - grid.mean(axis=0, keepdims=True) + grid.mean()
    freedom = (len(table) - 1) * (len(complete) - 1)
    return math.sqrt(float((residuals**2).sum()) / freedom), freedom
