"""Tasks and attempts: what a worker has claimed, what it holds, and what the database knows of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optuna.trial import FrozenTrial

from dsopt.experiment.outcome import Measured, Slow, figures_of
from dsopt.launch.devices import DevicePool
from dsopt.study.part import Part
from dsopt.study.space import Candidate
from dsopt.study.trial_attributes import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One claimed candidate to be run: a trial of a part of a study.

    Attributes:
        part: the part.
        trial: number of its trial in the part's Optuna study.
        name: the candidate's name, or `baseline` or `profile`.
        round: 0 in the search, 1, 2 … in the confirmation.
        phase: in the search, whether it was chosen to find the range of micro-batch sizes or to explore within it.
        candidate: the point of the space; None: the user's own configuration, a compared one, or not looked up yet.
    """

    part: Part
    trial: int
    name: str
    round: int
    phase: Phase | None = None
    candidate: Candidate | None = None

    @property
    def key(self) -> tuple[Part, int]:
        """The part and the number: what tells it from all others of its study."""
        return (self.part, self.trial)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A candidate that is not claimed yet, and the trial that it becomes with its claim."""

    part: Part
    name: str
    round: int
    frozen: FrozenTrial
    phase: Phase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A running attempt with what it holds; `hosts`: devices by node, if dsopt itself starts it on several."""

    id: str
    devices: DevicePool
    port: int
    hosts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def measurement_row(outcome: Measured | Slow, metric: str) -> dict[str, Any]:
    """What the database stores of a measurement; the metric is the study's."""
    figures = figures_of(outcome)
    return {
        "metric": figures.metric(metric),
        "step_seconds": figures.measurement.step_seconds,
        "half_width_seconds": figures.measurement.half_width_seconds,
        "samples_per_second": figures.measurement.samples_per_second,
        "peak_memory_bytes": float(figures.peak_memory_bytes),
        "details": json.dumps(outcome.to_json()),
    }
