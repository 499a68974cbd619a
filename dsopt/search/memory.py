"""How much memory a candidate needs, and how likely it fits: ZeRO's formulas, calibrated on runs."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.optuna.normal import ndtr
from dsopt.search.activations import activation_lines
from dsopt.search.facts import ModelFacts
from dsopt.search.gaussian import Belief
from dsopt.search.grid import Grid
from dsopt.search.history import History, Observation
from dsopt.search.kinds import Kinds
from dsopt.search.memory_moments import SHARES, STAGES, WEIGHTS, Moments
from dsopt.search.memory_runs import Point, Telling, point_of
from dsopt.search.sharding import sharding_of
from dsopt.search.tally import tallies
from dsopt.study.quantity import gib
from dsopt.study.space import Candidate, Setting
from dsopt.study.spec import StudySpec

# A full host kills processes, and whatever else runs there needs its share.
_HOST_SHARE: Final = 0.9
# What no smooth model can know: allocators round, and kernels change their workspace with the size. Published
# estimators of peak memory are wrong by about 3 %; this one is calibrated on the job itself.
_ERROR_SHARE: Final = 0.015
_BEND: Final = 0.06  # of activations, for each doubling of the size; less, the more sizes ran
_SPREAD: Final = 0.005  # of peaks of one candidate, and of others like it
# Below this probability of fitting, a candidate is never run; a range of sizes may reach the next one.
_HOPELESS: Final = 0.03
EVEN: Final = 0.5  # what more likely fits than not
_ROUNDS: Final = 3
_FEW: Final = 16  # runs
_FAR_BELOW: Final = 0.7
_SURPRISE: Final = 1.5  # standard deviations that what ran out of memory may have been expected below the device
_LARGEST_SIZE: Final = 2**16

# weights without a unit, which hold on another device, too
_OF_THE_SCRIPT: Final = (
    *(index for index, name in enumerate(WEIGHTS) if name not in ("overhead", "reserve")),
    *range(SHARES.start, SHARES.stop),
)
# what activations and their gradients take beside each other at the peak, relative to what a forward pass left:
# workspaces on top, and where layers are recomputed, all of one layer
_ACTIVATIONS: Final = (1.25, 0.35)
_UNSEEN_ACTIVATIONS: Final = (0.85, 0.5)  # relative to what states leave of a peak
# what settings that may change activations add to that before one of them was run; much more than the least-memory
# profile where that is all that was seen, since it recomputes what it can
_OTHER_KIND: Final = (0.0, 0.6)
_LESS_FRUGAL_KIND: Final = (2.0, 1.5)
# the same of recomputing activations, or no more doing so
_RECOMPUTED: Final = (-0.9, 0.25)
_KEPT: Final = (5.0, 4.0)


class MemoryModel:
    """Peak memory of one rank, as a distribution.

    It is the highest of three moments (`search/memory_moments.py`). Their weights have priors and are calibrated on the
    peaks of runs at all stages. A candidate fits if its peak and the reserve stay within the device.
    The reserve is what torch's counters do not see (context, communication libraries) and what fragmentation takes.
    Measured runs bound it from above, those that ran out of memory from below (censored data).

    Attributes:
        kinds: which settings may leave as much in a forward pass as others.
        out_of_memory: the candidates that ran out of the device's memory or the host's.
    """

    def __init__(self, spec: StudySpec, facts: ModelFacts, history: History) -> None:
        self.spec = spec
        self.facts = facts
        of_reference, *of_stages = tallies(history, Telling)
        self.out_of_memory = [candidate for told in of_stages for candidate in told.out_of_memory]
        settings = [group for stage in spec.stages for group in spec.space(stage, facts.hidden_size).groups()]
        self.kinds = Kinds(spec, history)
        self._others = list(dict.fromkeys(kind for setting in settings if (kind := self.kinds.of(setting))))
        self._activations = activation_lines(spec, facts, history, self.kinds)
        self._moments = Moments(spec, facts, self._activations, self.kinds, self._others)
        self._belief = self._first = self._after = self._prior(history)
        self._learnt_of: Mapping[int, Observation] = {}  # by id, while they live
        self._sizes: dict[tuple[int, Setting], set[int]] = {}  # that ran, by stage and kind of activations
        self._learn(history, [of_reference, *of_stages])

    def estimate(self, candidate: Candidate) -> float:
        """Expected peak of one rank, in bytes, as torch counts it."""
        return float(self.predict(Grid.of([candidate]))[0][0])

    def predict(self, grid: Grid) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Expected peak of each candidate in bytes, as torch counts it, and its standard deviation; shapes `(n,)`."""
        mean, variance = self._belief.predict(self._design(grid))
        return np.maximum(0.0, mean), np.hypot(np.sqrt(variance), self._misfit(grid, mean))

    def fit_probability(self, grid: Grid) -> NDArray[np.float64]:
        """How likely each candidate fits the device and the host, shape `(n,)`."""
        rows = self._design(grid)
        peak = rows @ self._belief.mean
        rows[:, WEIGHTS.index("reserve")] = 1.0
        needed, variance = self._belief.predict(rows)
        deviation = np.hypot(np.sqrt(variance), self._misfit(grid, peak))
        probability: NDArray[np.float64] = ndtr((self.facts.device_memory_bytes - needed) / deviation)
        for accumulates in (False, True):
            fits = [self._why_not_host(*setting, accumulates=accumulates) is None for setting in grid.settings]
            probability[~np.array(fits)[grid.which] & ((grid.gas > 1) == accumulates)] = 0.0
        for known in self.out_of_memory:
            same = np.array([(stage, setting) == (known.stage, known.knobs) for stage, setting in grid.settings])
            probability[same[grid.which] & (grid.micro_batch >= known.micro_batch) & (grid.gas >= known.gas)] = 0.0
        return probability

    def host_estimate(self, stage: int, setting: Setting = (), *, accumulates: bool = False) -> float:
        """Host memory that offloaded states of one node take, in bytes."""
        return sharding_of(self.spec, self.facts, stage, setting).host_bytes(self.facts, accumulates=accumulates)

    def why_not(self, candidate: Candidate) -> str | None:
        """Why a candidate will not run, if that is almost certain."""
        for known in self.out_of_memory:
            same = (known.stage, known.knobs) == (candidate.stage, candidate.knobs)
            if same and known.micro_batch <= candidate.micro_batch and known.gas <= candidate.gas:
                return f"{known.name}, which is no larger, ran out of memory"
        host = self._why_not_host(candidate.stage, candidate.knobs, accumulates=candidate.gas > 1)
        if host is not None:
            return host
        if float(self.fit_probability(Grid.of([candidate]))[0]) < _HOPELESS:
            needed = self.estimate(candidate)
            size, has = candidate.micro_batch, self.facts.device_memory_bytes
            return (
                f"would need about {gib(needed)} per device at micro-batch {size}; a device has {gib(has)} "
                f"({gib(self.reserve)} of it reserved by what torch does not count)"
            )
        return None

    @property
    def reserve(self) -> float:
        """Expected part of the device that training cannot use, in bytes."""
        return float(self._belief.mean[WEIGHTS.index("reserve")])

    def fits(self, candidate: Candidate) -> bool:
        """Whether a candidate may run."""
        return self.why_not(candidate) is None

    def largest_micro_batch(self, stage: int, setting: Setting = (), probability: float = EVEN, gas: int = 1) -> int:
        """The largest micro-batch size that fits with at least this probability; 0 if there is none."""
        octaves = [1 << octave for octave in range(_LARGEST_SIZE.bit_length() - 1)]
        least = apart = self._last_that_fits(stage, setting, octaves, probability, gas)
        while apart > 1:
            sizes = range(least, least + apart, apart := max(1, apart // 16))
            least = self._last_that_fits(stage, setting, sizes, probability, gas)
        return least

    def _last_that_fits(self, stage: int, setting: Setting, sizes: Sequence[int], probability: float, gas: int) -> int:
        """The last of ascending sizes before one that fits with less than this probability; 0 if that is the first."""
        grid = Grid.of([Candidate(stage=stage, micro_batch=size, gas=gas, knobs=setting) for size in sizes])
        number = int(np.logical_and.accumulate(self.fit_probability(grid) >= probability).sum())
        return sizes[number - 1] if number else 0

    def _why_not_host(self, stage: int, setting: Setting, *, accumulates: bool) -> str | None:
        has = self.facts.host_memory_bytes * _HOST_SHARE
        if has and (needed := self.host_estimate(stage, setting, accumulates=accumulates)) > has:
            return f"would need about {gib(needed)} of host memory for offloaded states; a node has {gib(has)}"
        return None

    def _prior(self, history: History) -> Belief:
        device = float(self.facts.device_memory_bytes)
        outside, is_seen = self.facts.outside_bytes, self.facts.activation_bytes > 0
        known = {
            "states": (1.0, 0.05),
            "reduce_buffers": (0.8, 0.4),
            "live_parameters": (0.5, 0.4),
            "kept_gradients": (0.3, 0.4),
            "step_copies": (1.0, 0.4),
            "overhead": (0.005 * device, (0.03 if is_seen else 0.1) * device),
            "reserve": (outside + 0.015 * device, 0.012 * device) if outside else (0.04 * device, 0.025 * device),
            "activations": _ACTIVATIONS if is_seen else _UNSEEN_ACTIVATIONS,
        }
        run = history.telling_run
        is_frugal = run is not None and run.candidate is not None and run.name == "profile"
        of_kinds = [self._of_kind(kind, is_frugal=is_frugal) for kind in self._others]
        mean = [*(known[name][0] for name in WEIGHTS), *[0.0] * (2 * len(STAGES))]
        mean += [expected for expected, _ in of_kinds]
        deviation = [known[name][1] for name in WEIGHTS]
        deviation += [0.015 * device] * len(STAGES) + [0.1] * len(STAGES)
        deviation += [spread for _, spread in of_kinds]
        if history.begun_with is not None:
            earlier, facts = history.begun_with
            belief = MemoryModel(earlier.spec, facts, earlier.history)._belief
            variance = np.diag(belief.covariance)
            for index in _OF_THE_SCRIPT:
                mean[index] = float(belief.mean[index])
                deviation[index] = min(deviation[index], math.hypot(math.sqrt(variance[index]), deviation[index] / 3))
        return Belief.independent(np.array(mean), np.array(deviation))

    def _of_kind(self, kind: Setting, *, is_frugal: bool) -> tuple[float, float]:
        """What a kind adds to the weight of activations, and its standard deviation."""
        if kind in self._activations:
            return 0.0, _ACTIVATIONS[1]
        recomputes = self.kinds.recomputes(kind)
        if recomputes:
            return _RECOMPUTED if recomputes > 0 else _KEPT
        return _LESS_FRUGAL_KIND if is_frugal else _OTHER_KIND

    def _learn(self, history: History, told: Sequence[Telling]) -> None:
        """Learns from each run; if the study's last model saw all before as this one does, only from the others."""
        measured = [run for one in told for run in one.measured]
        before = history.learnt.get(MemoryModel)
        new = before._not_learnt_of(measured) if isinstance(before, MemoryModel) and before._sees_like(self) else None
        if isinstance(before, MemoryModel) and new is not None:
            self._belief, self._moments = before._after, before._moments
            self._sizes = {key: set(sizes) for key, sizes in before._sizes.items()}
            self._learnt_of = {**before._learnt_of, **{id(run): run for run in new}}
            self._teach(new)
        else:
            self._learnt_of = {id(run): run for run in measured}
            self._learn_anew(measured)
        self._after = self._belief
        history.learnt[MemoryModel] = self
        self._teach([run for one in told for run in one.without_peak])  # again: what an OOM tells depends on the peaks

    def _learn_anew(self, runs: Sequence[Observation]) -> None:
        """Learns from all runs. Which moment a peak is of shows only when others are known, so it looks again."""
        by = None
        for _ in range(_ROUNDS):
            self._belief = self._first
            self._teach(runs, by)
            by = self._belief

    def _sees_like(self, other: "MemoryModel") -> bool:
        mine, theirs = ((one.facts, one._activations, one._others, one.kinds.base) for one in (self, other))
        same = [np.array_equal(self._first.mean, other._first.mean)]
        same.append(np.array_equal(self._first.covariance, other._first.covariance))
        return self.spec is other.spec and mine == theirs and all(same)

    def _not_learnt_of(self, runs: Sequence[Observation]) -> list[Observation] | None:
        """The runs that are new to this model; None if it knows too few to go on from, or some that count no more."""
        known = self._learnt_of
        new = [run for run in runs if id(run) not in known]
        return new if len(known) >= _FEW and len(known) + len(new) == len(runs) else None

    def _teach(self, runs: Sequence[Observation], by: Belief | None = None) -> None:
        """Learns from runs, one after the other; `by` tells which moments their peaks are of, if not what is known."""
        points = [point_of(run) for run in runs]
        moments = self._moments.of(Grid.of([point.candidate for point in points])) if points else ()
        for point, *rows in zip(points, *moments, strict=True):
            if point.peak_bytes is not None:
                kind = (point.candidate.stage, self.kinds.of(point.candidate.knobs))
                self._sizes.setdefault(kind, set()).add(point.candidate.micro_batch)
            self._belief = self._taught(point, max(rows, key=(by or self._belief).mean.dot))

    def _taught(self, point: Point, row: NDArray[np.float64]) -> Belief:
        device = float(self.facts.device_memory_bytes)
        belief = self._belief
        if point.peak_bytes is not None:
            belief = belief.measured(row, point.peak_bytes, _SPREAD * point.peak_bytes)
            if point.peak_bytes < _FAR_BELOW * device:
                return belief  # that it fitted says nothing about the reserve
        with_reserve = row.copy()
        with_reserve[WEIGHTS.index("reserve")] = 1.0
        noise = _ERROR_SHARE * device
        if point.peak_bytes is not None:
            return belief.below(with_reserve, device, noise)
        # a surprising OOM shows that little was known about its kind of activations, else about its stage
        kind = self.kinds.of(point.candidate.knobs)
        unknown = len(WEIGHTS) + point.candidate.stage
        if kind in self._others and not any(known == kind for _, known in self._sizes):
            of_kind = len(row) - len(self._others) + self._others.index(kind)
            unknown = of_kind if row[of_kind] else unknown
        doubted = belief.doubted(with_reserve, device, noise, np.eye(len(row))[unknown], _SURPRISE)
        return doubted.above(with_reserve, device, noise)

    def _misfit(self, grid: Grid, peak: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standard deviation of peaks from any such model: it grows with the distance to sizes that ran."""
        known_sizes = {key: np.log2(sorted(sizes)) for key, sizes in self._sizes.items()}
        everywhere = np.concatenate([*known_sizes.values()] or [np.log2([self.facts.micro_batch])])
        octaves = np.empty(len(grid.which))
        keys = [(stage, self.kinds.of(setting)) for stage, setting in grid.settings]
        for index, key in enumerate(keys):
            of_it = grid.which == index
            apart = np.abs(np.log2(grid.micro_batch[of_it])[:, None] - known_sizes.get(key, everywhere))
            octaves[of_it] = np.min(apart, axis=1)
        doublings = {key: len(set(known.round())) for key, known in known_sizes.items()}
        bend = np.array([_BEND * min(1.0, 2 / doublings.get(key, 1)) for key in keys])[grid.which]
        activations = np.minimum(self._moments.activations(grid) * _ACTIVATIONS[0], peak)
        bent: NDArray[np.float64] = bend * octaves * activations
        return np.hypot(_ERROR_SHARE * peak, bent)

    def _design(self, grid: Grid) -> NDArray[np.float64]:
        """What the weights multiply, for the highest of the three moments, shape `(n, k)`."""
        moments = np.array(self._moments.of(grid))
        highest = np.argmax(moments @ self._belief.mean, axis=0)
        rows: NDArray[np.float64] = moments[highest, np.arange(len(highest))]
        return rows
