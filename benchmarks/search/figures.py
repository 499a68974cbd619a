"""The figures that are published, from rows of results: ratios, shares and their bootstrap intervals."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from benchmarks.search.goals import Goals, goals_of
from benchmarks.search.results import Row

OURS: Final = "dsopt"
THEIRS: Final = "deepspeed"
WITHIN: Final = 0.03
AFTER_LAUNCHES: Final = 10
_RESAMPLES: Final = 2000

# the rows of one case, by tuner; resampled as one, since cases differ more than tuners do
Case: TypeAlias = Mapping[str, Row]
Statistic: TypeAlias = Callable[[Sequence[Case]], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published figure.

    Attributes:
        name: what it is, in words.
        value: over all cases.
        low, high: its 95 % bootstrap interval over cases, where one makes sense (a worst case has none).
        goal: what it has to be, in words, or "".
        is_met: whether it is, or None without a goal.
        count: cases.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    goal: str
    is_met: bool | None
    count: int


def figures(rows: Sequence[Row], *, tuner: str = OURS, rival: str = THEIRS) -> list[Figure]:
    """The figures of the search's goals for one set of cases, one mode and one noise level.

    Args:
        rows: of that set, mode and noise; every case with all tuners.
        tuner: whose figures.
        rival: whom it is compared with.
    """
    cases, sides, goals = by_case(rows), _Sides(tuner=tuner, rival=rival), goals_of(rows[0])
    return [*_costs(cases, sides, goals), *_choices(cases, sides, goals), *_models(cases, sides, goals)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """Whose figures, and whom it is compared with: what makes statistics over cases of values of their rows."""

    tuner: str
    rival: str

    def total(self, value: Callable[[Row], float]) -> Statistic:
        return lambda chosen: sum(value(case[self.tuner]) for case in chosen)

    def against(self, value: Callable[[Row], float], other: Callable[[Row], float]) -> Statistic:
        return lambda chosen: self.total(value)(chosen) / sum(other(case[self.rival]) for case in chosen)

    def mean(self, value: Callable[[Row], float]) -> Statistic:
        return lambda chosen: self.total(value)(chosen) / len(chosen)


def _costs(cases: Sequence[Case], sides: _Sides, goals: Goals) -> list[Figure]:
    """What the answer costs, in runs and in time."""

    def reaching(chosen: Sequence[Case]) -> float:
        spent = sum(_seconds_until(case[sides.tuner], _allowed(case[sides.rival])) for case in chosen)
        return spent / sum(case[sides.rival].cluster_seconds for case in chosen)

    return [
        _figure(
            "all launches ÷ all of DeepSpeed's",
            cases,
            sides.against(lambda r: r.launches, lambda r: r.launches),
            at_most=goals.launches,
        ),
        _figure(
            "cluster time to the answer ÷ DeepSpeed's",
            cases,
            sides.against(lambda r: r.cluster_seconds, lambda r: r.cluster_seconds),
            at_most=goals.seconds,
        ),
        _figure(
            "the same, geometric mean over cases",
            cases,
            lambda chosen: geometric_mean(
                [case[sides.tuner].cluster_seconds / case[sides.rival].cluster_seconds for case in chosen]
            ),
        ),
        _figure(
            "time until the best so far is as good as DeepSpeed's choice ÷ DeepSpeed's time",
            cases,
            reaching,
            at_most=goals.reaching,
        ),
        _figure(
            "experiments until the choice was measured ÷ all of DeepSpeed's",
            cases,
            sides.against(lambda r: r.experiments_to_choice, lambda r: r.launches),
        ),
    ]


def _seconds_until(row: Row, share: float) -> float:
    """When the best so far first had this share of the oracle; all of the time if it never had."""
    reached = (at for at, known in zip(row.seconds, row.shares, strict=True) if (known or 0.0) >= share)
    return next(reached, row.cluster_seconds)


def _choices(cases: Sequence[Case], sides: _Sides, goals: Goals) -> list[Figure]:
    """How good the answer is."""
    tuner, rival = sides.tuner, sides.rival
    over_theirs = [_over(case[tuner].share, _allowed(case[rival])) for case in cases]
    over_own = [_over(case[tuner].share, case[tuner].baseline_share) for case in cases]
    return [
        _figure(
            "choice ÷ oracle, geometric mean",
            cases,
            lambda chosen: geometric_mean([case[tuner].share for case in chosen]),
            at_least=goals.choice,
        ),
        _worst("choice ÷ oracle, worst", [case[tuner].share for case in cases], goals.worst),
        _figure(
            "choice ÷ DeepSpeed's choice, geometric mean",
            cases,
            lambda chosen: geometric_mean([_over(c[tuner].share, _allowed(c[rival])) for c in chosen]),
        ),
        _worst("choice ÷ DeepSpeed's choice, worst", over_theirs, 0.99),
        _worst("choice ÷ baseline, worst", over_own, goals.baseline),
    ]


def _models(cases: Sequence[Case], sides: _Sides, goals: Goals) -> list[Figure]:
    """How well the search knows what fits, what is fast, and how sure it is."""
    tuner = sides.tuner
    found = [
        _figure("launches out of memory a study", cases, sides.mean(lambda r: r.ooms), at_most=goals.ooms),
        _figure("cases whose optimum was ruled out", cases, sides.total(lambda r: r.optimum_ruled_out), at_most=0.0),
        _figure(
            f"cases within {WITHIN:.0%} of the oracle after {AFTER_LAUNCHES} launches",
            cases,
            sides.mean(lambda r: r.share_after(AFTER_LAUNCHES) >= 1 - WITHIN),
            at_least=0.95,
        ),
    ]
    told = [case for case in cases if case[tuner].memory_errors]
    if told:
        name, error = "mean error of predicted peak memory after three launches", sides.mean(_memory_error)
        found.append(_figure(name, told, error, at_most=0.05))
    stated = [case for case in cases if case[tuner].interval_holds is not None]
    if stated:
        holds = sides.mean(lambda r: bool(r.interval_holds))
        found.append(_figure("stated 95 % intervals that hold", stated, holds, within=(0.93, 0.97)))
    return found


def _memory_error(row: Row) -> float:
    return float(np.mean(np.abs(row.memory_errors)))


def by_case(rows: Sequence[Row]) -> list[Case]:
    """Rows of the same case and seed together, by tuner."""
    cases: dict[tuple[str, int], dict[str, Row]] = {}
    for row in rows:
        cases.setdefault((row.case, row.seed), {})[row.tuner] = row
    return list(cases.values())


def geometric_mean(shares: Sequence[float]) -> float:
    """Geometric mean; 0 when one of them is."""
    return 0.0 if min(shares) <= 0 else math.exp(sum(map(math.log, shares)) / len(shares))


def interval(cases: Sequence[Case], statistic: Statistic) -> tuple[float, float]:
    """The 95 % percentile interval of a statistic over resampled cases (Efron & Tibshirani, chapter 13).

    A case is drawn with all of its seeds: those are one case again, and not further ones.
    """
    named: dict[str, list[Case]] = {}
    for case in cases:
        named.setdefault(next(iter(case.values())).case, []).append(case)
    seeds = list(named.values())
    random = np.random.default_rng(0)
    draws = random.integers(0, len(seeds), size=(_RESAMPLES, len(seeds)))
    values = [statistic([case for index in draw for case in seeds[index]]) for draw in draws]
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def _over(share: float, other: float) -> float:
    """A ratio in which beating what does not run is infinitely good, and being beaten by nothing is no loss."""
    return share / other if other > 0 else math.inf


def _allowed(row: Row) -> float:
    """The share of a choice that the user can train with; a larger batch than is allowed leaves the user's own."""
    return row.baseline_share if row.exceeds_batch else row.share


def _figure(
    name: str,
    cases: Sequence[Case],
    statistic: Statistic,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    within: tuple[float, float] | None = None,
) -> Figure:
    value = statistic(cases)
    low, high = interval(cases, statistic)
    goal, is_met = "", None
    if at_most is not None:
        goal, is_met = f"≤ {at_most:g}", value <= at_most
    elif at_least is not None:
        goal, is_met = f"≥ {at_least:g}", value >= at_least
    elif within is not None:
        goal, is_met = f"{within[0]:g} to {within[1]:g}", within[0] <= value <= within[1]
    return Figure(name=name, value=value, low=low, high=high, goal=goal, is_met=is_met, count=len(cases))


def _worst(name: str, ratios: Sequence[float], goal: float) -> Figure:
    value = min(ratios)
    return Figure(
        name=name, value=value, low=None, high=None, goal=f"≥ {goal:g}", is_met=value >= goal, count=len(ratios)
    )
