"""What published GPU runs say of time, memory and ZeRO stages, as curves over the micro-batch size and as ratios.

Nothing here knows a formula of step time or memory: it picks rows of `benchmarks/measured/data`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Final

import numpy as np

from benchmarks.measured.runs import DATA, Run, read_groups

# figure by micro-batch size, in order of the sizes
Points = tuple[tuple[float, float], ...]
_FEWEST_SIZES: Final = 3
_ROOMY: Final = 0.9  # of a device; above it, what is in use beside the tensors says how much there was to use


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One published job at one stage.

    Attributes:
        source, run: the file, and a row of the job, for its facts.
        seconds: of a micro-step.
        peaks: bytes; fewer than two where the source does not say.
    """

    source: str
    run: Run
    seconds: Points
    peaks: Points


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRatio:
    """Two published runs of one job that differ in their stage: the higher one's figures ÷ the lower one's.

    `seconds` or `peak` is None where the source does not say; `is_whole`: whether every parameter is trained.
    """

    is_whole: bool
    low: int
    high: int
    seconds: float | None
    peak: float | None


@lru_cache
def groups() -> Mapping[str, Sequence[Run]]:
    """The published runs, by group."""
    return read_groups(DATA)


@lru_cache
def time_curves() -> tuple[Curve, ...]:
    """The jobs whose step time is published at three micro-batch sizes or more."""
    return tuple(curve for curve in _curves() if len(curve.seconds) >= _FEWEST_SIZES)


@lru_cache
def memory_curves() -> tuple[Curve, ...]:
    """The jobs that train every parameter and whose peaks are published at two sizes or more, and grow."""
    return tuple(curve for curve in _curves() if grows(curve) and curve.run.trainable == curve.run.params)


def grows(curve: Curve) -> bool:
    """Whether peaks are known and the last is above the one before."""
    return len(curve.peaks) > 1 and curve.peaks[-1][1] > 1.02 * curve.peaks[-2][1]


@lru_cache
def stage_ratios() -> tuple[StageRatio, ...]:
    """Pairs of one group, and of scripts that ran on one device without sharding and on two or four at ZeRO 3."""
    found = []
    for runs in _by_script().values():
        for one, other in combinations([run for run in runs if run.outcome == "ok"], 2):
            low, high = sorted((one, other), key=lambda run: run.stage)
            same = [(r.micro_batch, r.gas, r.seq, r.recomputes, r.offload) for r in (low, high)]  # samples too
            if low.stage == high.stage or same[0] != same[1] or low.offload != ("none", "none"):
                continue
            found.append(
                StageRatio(
                    is_whole=low.trainable == low.params,
                    low=low.stage,
                    high=high.stage,
                    seconds=high.seconds / low.seconds if high.seconds and low.seconds else None,
                    peak=high.peak / low.peak if high.peak and low.peak else None,
                )
            )
    return tuple(found)


@lru_cache
def once_shares(*, is_pipelined: bool) -> tuple[float, ...]:
    """What a step takes beside its micro-steps, in micro-steps: where the same size ran with accumulation 2 and 4.

    A pipeline fills and empties once a step, which takes micro-steps; nothing else takes as long.
    """
    found = []
    for runs in groups().values():
        alike = [run for run in runs if run.seconds and (run.pipeline > 1) == is_pipelined]
        steps = {(run.micro_batch, run.gas): run.seconds for run in alike}
        for size in sorted({size for size, _ in steps}):
            if (size, 2) in steps and (size, 4) in steps:
                micro = (steps[size, 4] - steps[size, 2]) / 2
                found.append(steps[size, 2] / micro - 2)
    return tuple(share for share in found if share > 0)


@lru_cache
def reserves() -> tuple[float, ...]:
    """Memory in use as the driver counts it ÷ what tensors take, less one, where the device had room."""
    runs = [run for of_group in groups().values() for run in of_group]
    told = [run for run in runs if run.peak and run.memory_kind == "allocated" and run.gpu_bytes]
    roomy = [run for run in told if run.peak < run.device_used < _ROOMY * run.gpu_bytes]
    return tuple(run.device_used / run.peak - 1 for run in roomy)


def _curves() -> Iterator[Curve]:
    for name, runs in groups().items():
        for setting in sorted({run.setting for run in runs}):
            alike = [run for run in runs if run.setting == setting and run.outcome == "ok"]
            if alike and alike[0].offload == ("none", "none"):
                seconds = _points(alike, lambda run: run.seconds / run.gas)
                peaks = _points(alike, lambda run: float(run.peak))
                yield Curve(source=name.partition(":")[0], run=alike[0], seconds=seconds, peaks=peaks)


def _points(runs: Sequence[Run], figure: Callable[[Run], float]) -> Points:
    """A figure by size, of the run with the most accumulation, which has least of what a step does once."""
    found: dict[int, tuple[int, float]] = {}
    for run in runs:
        if figure(run) and run.gas > found.get(run.micro_batch, (0, 0.0))[0]:
            found[run.micro_batch] = (run.gas, figure(run))
    points = sorted((size, value) for size, (_, value) in found.items())
    rising = np.maximum.accumulate([value for _, value in points]) if points else []
    return tuple((size, float(value)) for (size, _), value in zip(points, rising, strict=True))


def _by_script() -> Mapping[str, Sequence[Run]]:
    """Runs of the same model and script, on however many GPUs where that is all that differs."""
    found: dict[str, list[Run]] = {}
    for name, runs in groups().items():
        found.setdefault(re.sub(r"/\dgpu$", "", name), []).extend(runs)
    return {
        name: runs
        for name, runs in found.items()
        if len({run.stage for run in runs}) > 1 and not name.startswith(("vtrain", "llm"))
    }
