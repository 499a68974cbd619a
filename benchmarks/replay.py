"""A recorded grid as a machine: any tuner runs on what was once measured for real.

A size or accumulation between recorded ones takes step time and memory by the straight line between them; beyond the
last that ran, by the line through the last two, up to the memory there was. Noise is what was recorded: a launch is one
of the recorded launches of the nearest candidate, its warm-up as it was, then its steps by the moving-block bootstrap
(Künsch, 1989), which keeps what neighbouring steps have in common.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.grid import Grid, Launched, read_grid
from benchmarks.search.machine import DsConfig, Facts
from dsopt.simulated.cluster import Run
from dsopt.study.ds_config import get_path
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate, Knob

_STEPS = 400
_BLOCK = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """All launches of one candidate that ran."""

    candidate: Candidate
    launches: tuple[Launched, ...]

    @property
    def step_seconds(self) -> float:
        """Mean of a step after the warm-up, over all launches."""
        return float(np.mean([_settled(launched).mean() for launched in self.launches]))

    def mean(self, name: str) -> float:
        """Mean of a figure over all launches."""
        return float(np.mean([getattr(launched, name) for launched in self.launches]))


_Line: TypeAlias = list[tuple[_Point, float]]


@dataclass(frozen=True)
class Recorded:
    """A grid as a machine for tuners."""

    path: Path
    grid: Grid

    @classmethod
    def read(cls, path: Path) -> "Recorded":
        """The machine of a grid's file."""
        return cls(path=path, grid=read_grid(path))

    @property
    def name(self) -> str:
        return self.grid.about.name

    @property
    def facts(self) -> Facts:
        about = self.grid.about
        return Facts(
            params=about.params,
            trainable_params=about.trainable_params,
            nodes=about.nodes,
            gpus_per_node=about.ranks // about.nodes,
            device_memory_bytes=about.memory_bytes,
            dtype=next((name for name in ("fp16", "bf16") if name in about.baseline), "fp32"),
        )

    @property
    def baseline(self) -> DsConfig:
        return self.grid.about.baseline

    @property
    def max_train_batch_size(self) -> int | None:
        return self.grid.about.max_train_batch_size

    @property
    def accumulations(self) -> tuple[int, ...]:
        """All that were recorded."""
        return tuple(sorted({launched.candidate.gas for launched in self.grid.launches}))

    @property
    def flags(self) -> Mapping[str, tuple[Knob, ...]]:
        return {}

    @property
    def without_noise(self) -> "Recorded":
        return self

    def run(self, ds_config: DsConfig, launch: int) -> Run:
        """One launch of a configuration.

        Raises:
            KeyError: the grid holds nothing of its stage and knobs.
        """
        asked = self._asked(ds_config)
        samples = asked.micro_batch * asked.gas * self.grid.about.ranks
        oom = self._why_not(asked)
        if oom is not None:
            starts = [launched.start_seconds for launched in self.grid.launches]
            return _out_of_memory(oom, samples, float(np.mean(starts)))
        line = self._line(asked)
        nearest = max(line, key=lambda part: part[1])[0]
        recorded = nearest.launches[launch % len(nearest.launches)]
        random = np.random.default_rng([launch, zlib.crc32(asked.name.encode())])
        step_seconds = _step_seconds(line)
        return Run(
            oom=None,
            peak_allocated_bytes=int(_mean_at(line, "peak_allocated_bytes")),
            peak_reserved_bytes=int(_mean_at(line, "peak_reserved_bytes")),
            activation_bytes=int(_mean_at(line, "activation_bytes")),
            outside_bytes=0,
            flops_per_step=_mean_at(line, "flops_per_step"),
            samples_per_step=samples,
            true_step_seconds=step_seconds,
            forward_seconds=_mean_at(line, "forward_seconds"),
            backward_seconds=_mean_at(line, "backward_seconds"),
            optimizer_seconds=_mean_at(line, "optimizer_seconds"),
            start_seconds=recorded.start_seconds,
            step_seconds=_bootstrapped(recorded, random) * (step_seconds / nearest.step_seconds),
        )

    def true_throughput(self, ds_config: DsConfig) -> float | None:
        """Samples per second over all recorded launches; None when it ran out of memory."""
        asked = self._asked(ds_config)
        if self._why_not(asked) is not None:
            return None
        samples = asked.micro_batch * asked.gas * self.grid.about.ranks
        return samples / _step_seconds(self._line(asked))

    @cached_property
    def _points(self) -> dict[Candidate, _Point | None]:
        """Every recorded candidate; None where one of its launches ran out of memory."""
        launches: dict[Candidate, list[Launched]] = {}
        for launched in self.grid.launches:
            launches.setdefault(launched.candidate, []).append(launched)
        return {
            candidate: None if any(one.oom for one in ran) else _Point(candidate=candidate, launches=tuple(ran))
            for candidate, ran in launches.items()
        }

    def _asked(self, ds_config: DsConfig) -> Candidate:
        """The candidate that a configuration is, recorded or not.

        What it leaves out is the user's own, or nothing. Flags of the script are no part of a configuration: of what
        was recorded with them, tuners see the launches without.
        """
        stage = int(get_path(ds_config, "zero_optimization.stage") or 0)
        knobs = []
        for key, values in self._values(stage).items():
            given = (get_path(ds_config, key), get_path(self.baseline, key), None, "none")
            knobs.append((key, next((value for value in given if value in values), given[0])))
        return Candidate(
            stage=stage, micro_batch=ds_config[MICRO_BATCH], gas=ds_config.get(ACCUMULATION, 1), knobs=tuple(knobs)
        )

    def _values(self, stage: int) -> dict[str, set[Knob]]:
        """The recorded values of each knob of a stage."""
        values: dict[str, set[Knob]] = {}
        for candidate in self._points:
            for key, value in candidate.knobs if candidate.stage == stage else ():
                values.setdefault(key, set()).add(value)
        return values

    def _alike(self, asked: Candidate) -> list[Candidate]:
        found = [c for c in self._points if (c.stage, c.knobs) == (asked.stage, asked.knobs)]
        if not found:
            raise KeyError(f"{self.path}: nothing like {asked.name} was recorded")
        return found

    def _why_not(self, asked: Candidate) -> str | None:
        """Why a candidate runs out of memory, or None."""
        if self._points.get(asked) is not None:
            return None
        alike = self._alike(asked)
        full = [
            c for c in alike if self._points[c] is None and c.micro_batch <= asked.micro_batch and c.gas <= asked.gas
        ]
        if full:
            return next(one.oom for one in self.grid.launches if one.candidate == full[0] and one.oom)
        if _mean_at(self._line(asked), "peak_reserved_bytes") > self.grid.about.memory_bytes:
            return "out of memory by the line through the recorded sizes"
        return None

    def _line(self, asked: Candidate) -> _Line:
        """The recorded points that a candidate is made up of, with their weights, which add up to 1."""
        ran = [point for candidate in self._alike(asked) if (point := self._points[candidate]) is not None]
        return [
            (point, gas_weight * size_weight)
            for gas, gas_weight in _weights([point.candidate.gas for point in ran], asked.gas)
            for point, size_weight in _among([point for point in ran if point.candidate.gas == gas], asked.micro_batch)
        ]


def _among(points: list[_Point], micro_batch: int) -> _Line:
    by_size = {point.candidate.micro_batch: point for point in points}
    return [(by_size[size], weight) for size, weight in _weights(list(by_size), micro_batch)]


def _weights(known: list[int], wanted: int) -> list[tuple[int, float]]:
    """Known places and their weights on the straight line at `wanted`: one where it is known, or all there is."""
    places = sorted(set(known))
    if wanted in places or len(places) == 1:
        return [(wanted if wanted in places else places[0], 1.0)]
    index = min(max(int(np.searchsorted(places, wanted)), 1), len(places) - 1)
    low, high = places[index - 1], places[index]
    share = (wanted - low) / (high - low)
    return [(low, 1 - share), (high, share)]


def _step_seconds(line: _Line) -> float:
    return sum(weight * point.step_seconds for point, weight in line)


def _mean_at(line: _Line, name: str) -> float:
    return sum(weight * point.mean(name) for point, weight in line)


def _settled(launched: Launched) -> NDArray[np.float64]:
    """The last two thirds of the steps: the truth may leave out more of the start than a measurement can afford to."""
    times = np.array(launched.step_seconds)
    return times[len(times) // 3 :]


def _bootstrapped(launched: Launched, random: np.random.Generator) -> NDArray[np.float64]:
    """A launch as it was until it had settled, then blocks of its steps drawn at random, shape (400,)."""
    times, settled = np.array(launched.step_seconds), _settled(launched)
    block = min(_BLOCK, len(settled))
    starts = random.integers(0, len(settled) - block + 1, size=_STEPS // block + 1)
    drawn = np.concatenate([settled[start : start + block] for start in starts])
    return np.concatenate([times[: len(times) - len(settled)], drawn])[:_STEPS]


def _out_of_memory(why: str, samples: int, start_seconds: float) -> Run:
    return Run(
        oom=why,
        peak_allocated_bytes=0,
        peak_reserved_bytes=0,
        activation_bytes=0,
        outside_bytes=0,
        flops_per_step=0.0,
        samples_per_step=samples,
        true_step_seconds=float("nan"),
        forward_seconds=0.0,
        backward_seconds=0.0,
        optimizer_seconds=0.0,
        start_seconds=start_seconds,
        step_seconds=np.empty(0),
    )
