"""What came of one attempt: one of five values, never a number that stands for a failure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias

from dsopt.experiment.events import Engine
from dsopt.experiment.measure import Measurement

PASSES: Final = ("forward", "backward", "step")
InfeasibleReason = Literal[
    "oom", "predicted_oom", "invalid_config", "fixed_batch", "fixed_accumulation", "overflow", "nonfinite_loss"
]
FailedReason = Literal["crash", "timeout", "no_metrics", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The run was measured.

    Attributes:
        measurement: step times with their interval.
        step_seconds: raw wall clock of every step, warm-up included.
        engine: what DeepSpeed's engine said of itself.
        peak_memory_bytes: the largest peak of any rank, as reserved from the device.
        peak_allocated_bytes: the largest peak of any rank, as tensors took it; 0 where it was not told.
        outside_bytes: the most in use on a device beside what torch reserved; 0 where it was not told.
        activation_bytes: what one forward pass of one micro-batch left allocated.
        flops_per_step: floating-point operations of one rank in one step, where they were counted.
        pass_seconds: of every step, what its forward passes, backward passes and optimizer calls took.
        rows: size of the first dimension of the first batch, 0 where it could not be seen.
        skipped: indices of the steps that the optimizer skipped, since their gradients were not finite.
        nonfinite: indices of the steps whose loss was NaN or infinite.
    """

    state: ClassVar = "measured"
    measurement: Measurement
    step_seconds: tuple[float, ...]
    engine: Engine
    peak_memory_bytes: int
    activation_bytes: int
    flops_per_step: float | None
    pass_seconds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    rows: int = 0
    peak_allocated_bytes: int = 0
    outside_bytes: int = 0
    skipped: tuple[int, ...] = ()
    nonfinite: tuple[int, ...] = ()

    @property
    def window(self) -> range:
        """Indices of the steps after warm-up, skipped ones included."""
        m = self.measurement
        return range(m.warmup_steps, m.warmup_steps + m.measured_steps + m.skipped_steps)

    @property
    def skipped_share(self) -> float:
        """The part of the steps after warm-up that was skipped."""
        return self.measurement.skipped_steps / len(self.window)

    @property
    def nonfinite_steps(self) -> int:
        """How many of the steps after warm-up had a loss of NaN or infinity."""
        return sum(index in self.window for index in self.nonfinite)

    @property
    def nonfinite_share(self) -> float:
        """The part of the steps after warm-up that these are."""
        return self.nonfinite_steps / len(self.window)

    def metric(self, name: str) -> float:
        """The value of a tuning metric: samples/s, FLOPS of one GPU, or milliseconds of an optimizer step.

        `latency` is all of a step; `forward`, `backward` and `step` are the parts of it in those calls of the engine,
        all micro-steps together.
        """
        if name == "throughput":
            return self.measurement.samples_per_second
        if name == "latency":
            return self.measurement.step_seconds * 1000
        if name in PASSES:
            seconds = self.pass_seconds[name]
            seen = [seconds[index] for index in self.window if index not in self.skipped]
            return sum(seen) / len(seen) * 1000
        assert name == "FLOPS"
        assert self.flops_per_step is not None, "FLOPS are counted whenever they are the metric"
        return self.flops_per_step / self.measurement.step_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """The run was stopped, since it could not become the best any more. It works; its figures say how slow it is.

    Attributes:
        so_far: what was measured until then.
        best: the metric that it would have had to reach.
        message: the same for people, with what it could have reached at most.
    """

    state: ClassVar = "slow"
    reason: ClassVar = "slow"
    so_far: Measured
    best: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """This configuration cannot run here: that is knowledge, not a failure."""

    state: ClassVar = "infeasible"
    reason: InfeasibleReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The run came to nothing. `retryable` when nothing in the script itself was seen to raise."""

    state: ClassVar = "failed"
    reason: FailedReason
    message: str
    retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """The worker was asked to stop."""

    state: ClassVar = "cancelled"
    reason: ClassVar = "cancelled"
    message: str = "the worker was asked to stop"


Outcome: TypeAlias = Measured | Slow | Infeasible | Failed | Cancelled


def figures_of(outcome: Measured | Slow) -> Measured:
    """What the steps of a run told, also of one that was stopped because it was slow."""
    return outcome.so_far if isinstance(outcome, Slow) else outcome
