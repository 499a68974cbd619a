"""When a run has said enough, and what it must agree with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dsopt.experiment.race import Race
from dsopt.study.space import Candidate
from dsopt.study.spec import MeasurementBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSizes:
    """Sizes of the user's own run: the rows of its batches, its micro-batch size and its accumulation."""

    rows: int
    micro_batch: int
    gas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """When a run has said enough.

    Attributes:
        measurement: precision wanted, and the step and time budget.
        window: first and last step to measure, where the user set them.
        floor: where warm-up is detected, the earliest first and last step: DeepSpeed's own window.
        timeout_seconds: a run that has not been measured by then is ended.
        expected: the candidate whose settings the engine must report, or None for the user's own configuration.
        needs_flops: whether the run must count floating-point operations.
        needs_pass: the pass of a step that has to be seen: `forward`, `backward` or `step`.
        own: sizes of the user's own run, where they are known.
        arg_mappings: the flags of the script that are set with the configuration, by its keys.
        must_be_sound: whether a figure is refused that rests on skipped steps or on a loss that is not finite.
        race: what the run has to be able to reach; it is stopped as soon as it cannot. None: it is measured whatever.
    """

    measurement: MeasurementBudget
    window: tuple[int, int] | None
    floor: tuple[int, int]
    timeout_seconds: float
    expected: Candidate | None
    needs_flops: bool
    needs_pass: str | None = None
    own: OwnSizes | None = None
    arg_mappings: Mapping[str, str] = field(default_factory=dict)
    must_be_sound: bool = False
    race: Race | None = None
