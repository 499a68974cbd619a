"""How far the search's models are from what others measured, after the first runs of each group."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.measured.runs import Run
from benchmarks.measured.study import MILLISECONDS, candidate_of, forecast_of
from dsopt.search.grid import Grid

Groups = dict[str, list[Run]]
_NORMAL_95: Final = 1.96
_SAFE: Final = 0.5  # likelier to fit than not


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A prediction beside what was measured: of peak memory in bytes, or of a step in seconds.

    Attributes:
        group, run: what it is of.
        truth, predicted, line: the figure, the models' and that of the straight line through the first two runs.
        holds: whether the models' 95 % interval holds the figure.
    """

    group: str
    run: Run
    truth: float
    predicted: float
    line: float
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether a run fitted its device, and what the models said: whether it was worth a try, and likely to fit."""

    group: str
    run: Run
    is_hopeless: bool
    is_safe: bool


def memory_guesses(groups: Groups, after: int, *, knows_activations: bool = False) -> Iterator[Guess]:
    """Peaks predicted after so many runs of each group.

    With `knows_activations`, the first run's are what the peaks of its two largest sizes show a sample to take; groups
    whose runs tell them by themselves are left out.
    """
    for name, runs in groups.items():
        told = [run for run in runs if run.peak and run.outcome == "ok" and run.gpu_bytes]
        activations = _activations_of(told) if knows_activations else 0
        if len(told) <= after or (knows_activations and (not activations or told[0].activations)):
            continue
        memory = forecast_of(told[:after], activations).memory
        line = _line(told[:after], lambda run: run.peak)
        for run in told[after:]:
            mean, deviation = memory.predict(Grid.of([candidate_of(run, told[0])]))
            yield Guess(
                group=name,
                run=run,
                truth=run.peak,
                predicted=_as_counted(run, float(mean[0])),
                line=_as_counted(run, line(run.micro_batch)),
                holds=bool(abs(mean[0] - run.peak) <= _NORMAL_95 * deviation[0]),
            )


def time_guesses(groups: Groups, after: int) -> Iterator[Guess]:
    """Step times predicted after so many runs of each group."""
    for name, runs in groups.items():
        told = [run for run in runs if run.seconds and run.outcome == "ok"]
        if len(told) <= after:
            continue
        forecast = forecast_of(told[:after])
        line = _line(told[:after], lambda run: run.seconds / run.gas)
        outlook = forecast.of([candidate_of(run, told[0]) for run in told[after:]])
        for run, score, deviation in zip(told[after:], outlook.score, outlook.deviation, strict=True):
            predicted = forecast.metric(float(score)) / MILLISECONDS
            yield Guess(
                group=name,
                run=run,
                truth=run.seconds,
                predicted=predicted,
                line=line(run.micro_batch) * run.gas,
                holds=bool(abs(np.log(predicted / run.seconds)) <= _NORMAL_95 * deviation),
            )


def fits(groups: Groups, after: int) -> Iterator[Fit]:
    """What the models say of the other runs of each group, after so many that ran."""
    for name, runs in groups.items():
        known = [run for run in runs if run.peak and run.outcome == "ok" and run.gpu_bytes][:after]
        if len(known) < after:
            continue
        memory = forecast_of(known).memory
        for run in (run for run in runs if run not in known):
            candidate = candidate_of(run, known[0])
            yield Fit(
                group=name,
                run=run,
                is_hopeless=not memory.fits(candidate),
                is_safe=float(memory.fit_probability(Grid.of([candidate]))[0]) >= _SAFE,
            )


def stage_order(guesses: Sequence[Guess]) -> tuple[int, int]:
    """Of how many pairs of runs at other ZeRO stages and equal sizes the models tell which has less, and all pairs."""
    pairs = [
        (one, other)
        for one, other in itertools.combinations(guesses, 2)
        if one.group == other.group
        and one.run.stage != other.run.stage
        and (one.run.micro_batch, one.run.gas, one.run.offload) == (
            other.run.micro_batch, other.run.gas, other.run.offload)
        and one.truth != other.truth
    ]  # fmt: skip
    right = [(a.predicted < b.predicted) == (a.truth < b.truth) for a, b in pairs]
    return sum(right), len(right)


def _as_counted(run: Run, peak: float) -> float:
    """A peak as the run's source counts it: what the driver or the allocator holds is never more than the device."""
    return peak if run.memory_kind == "allocated" else min(peak, run.gpu_bytes)


def _activations_of(runs: Sequence[Run]) -> int:
    sizes = sorted({run.micro_batch: run.peak for run in runs if run.setting == runs[0].setting}.items())
    if len(sizes) < 2:
        return 0
    (small, low), (large, high) = sizes[-2:]
    return round((high - low) / (large - small) * runs[0].micro_batch)


def _line(known: Sequence[Run], figure: Callable[[Run], float]) -> Callable[[int], float]:
    """The straight line over micro-batch sizes through the first two runs; through one, a constant."""
    first, second = known[0], known[min(1, len(known) - 1)]
    apart = second.micro_batch - first.micro_batch
    slope = (figure(second) - figure(first)) / apart if apart else 0.0
    return lambda size: figure(first) + slope * (size - first.micro_batch)
