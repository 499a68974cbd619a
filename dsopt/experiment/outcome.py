"""The outcome of one attempt: one of five values, never a number that means a failure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast

from dsopt.experiment.measure import Measurement
from dsopt.protocol.events import Engine

PASSES: Final = ("forward", "backward", "step")
# metrics that DeepSpeed's autotuner has too, by the keys of its `metrics.json`
DEEPSPEED_KEYS: Final[Mapping[str, str]] = {"throughput": "throughput", "latency": "latency", "FLOPS": "FLOPS_per_gpu"}
# figures of a run that are one value each, as `metrics.json` has them; earlier versions wrote only `_ALWAYS`
_ALWAYS: Final = ("peak_memory_bytes", "activation_bytes", "flops_per_step", "rows")
_PLAIN: Final = (
    *_ALWAYS,
    *("elements", "passes", "step_rows", "step_elements", "is_evaluated", "evaluation_share", "read_ahead", "growth"),
    "gain_of_full_steps",
    *("weight_bytes", "gradient_bytes", "optimizer_bytes"),
    *("peak_allocated_bytes", "outside_bytes", "alloc_retries", "ended"),
)
InfeasibleReason = Literal[
    "oom",
    "host_oom",
    "predicted_oom",
    "invalid_config",
    "unsupported",
    "fixed_batch",
    "fixed_accumulation",
    "fixed_setting",
    "few_samples",
    "overflow",
    "nonfinite_loss",
]
FailedReason = Literal["crash", "hardware", "machine", "timeout", "no_metrics", "lost", "taken"]
CancelledReason = Literal["cancelled", "suspended", "no_room", "removed", "shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """dsopt measured the run.

    Attributes:
        measurement: step times with their interval.
        step_seconds: wall clock of every step, warm-up included, as it counts (`experiment/evaluation.py`).
        engine: what DeepSpeed's engine reports about itself.
        peak_memory_bytes, peak_allocated_bytes: the largest of any rank, reserved and by tensors (0 if unknown).
        outside_bytes: the most in use on a device in addition to what torch reserved; 0 if unknown.
        alloc_retries: the most often that a rank's allocator gave cached blocks back, or ran out and was forgiven.
        activation_bytes: what one forward pass of one micro-batch left allocated.
        flops_per_step: floating-point operations of one rank in one step, if they were counted.
        weight_bytes, gradient_bytes, optimizer_bytes: what one parameter takes, as `States`; None if it was not seen.
        pass_seconds: how long the forward passes, backward passes and optimizer calls of each step took.
        rows, elements: of the first batch: its first dimension, and all its tensors; 0 if unknown, or most differ.
        passes, step_rows, step_elements: forward passes in a step, and the mean of their batches; 0 if unknown.
        is_evaluated: whether its steps show passes without gradients as a part of training.
        evaluation_share: the share of the time of all steps that these took, if the figures leave them out; else 0.
        read_ahead: the first steps that were fed with what was read while the script began, if reading cannot keep up.
        gain_of_full_steps: how much faster the figures are, relative, than all steps with those that were fed less.
        growth: how many times as many elements its last samples had as its first; 1 without a trend.
        skipped, unlike, nonfinite: indices of the steps that the optimizer skipped because their gradients were not
            finite, that were fed less than most or for which something was compiled, and whose loss was NaN or
            infinite.
        ended: why the run ended when it did; empty if an earlier version measured it.
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
    elements: int = 0
    passes: int = 0
    step_rows: float = 0.0
    step_elements: float = 0.0
    is_evaluated: bool = False
    evaluation_share: float = 0.0
    read_ahead: int = 0
    growth: float = 1.0
    gain_of_full_steps: float = 0.0
    weight_bytes: float | None = None
    gradient_bytes: float | None = None
    optimizer_bytes: float | None = None
    peak_allocated_bytes: int = 0
    outside_bytes: int = 0
    alloc_retries: int = 0
    skipped: tuple[int, ...] = ()
    unlike: tuple[int, ...] = ()
    nonfinite: tuple[int, ...] = ()
    ended: str = ""

    @property
    def needed_bytes(self) -> int:
        """What decides whether memory runs out (`ModelFacts.needed_bytes` says the same of a trial's attributes)."""
        if not self.outside_bytes:
            return self.peak_memory_bytes
        return (self.peak_allocated_bytes or self.peak_memory_bytes) + self.outside_bytes

    @property
    def window(self) -> range:
        """Indices of the steps after warm-up, including skipped ones and a pause."""
        m = self.measurement
        return range(m.warmup_steps, m.warmup_steps + m.measured_steps + m.skipped_steps + (m.pause_seconds > 0))

    @property
    def skipped_share(self) -> float:
        """The share of the steps after warm-up that were skipped."""
        return self.skipped_steps / len(self.window)

    @property
    def skipped_steps(self) -> int:
        """How many of the steps after warm-up were skipped."""
        return sum(index in self.window for index in self.skipped)

    @property
    def nonfinite_steps(self) -> int:
        """How many of the steps after warm-up had a loss of NaN or infinity."""
        return sum(index in self.window for index in self.nonfinite)

    @property
    def nonfinite_share(self) -> float:
        """Their share of the steps after warm-up."""
        return self.nonfinite_steps / len(self.window)

    def metric(self, name: str) -> float:
        """The value of a tuning metric: samples/s of all GPUs or one, its FLOPS, or milliseconds of an optimizer step.

        `latency` is all of a step; `forward`, `backward` and `step` are the parts of it in those calls of the engine,
        all micro-steps together.
        """
        if name in ("throughput", "throughput_per_gpu"):
            return self.measurement.samples_per_second / (1 if name == "throughput" else self.engine.world_size)
        if name == "latency":
            return self.measurement.step_seconds * 1000
        if name in PASSES:
            seconds = self.pass_seconds[name]
            pause = self.measurement.pause_seconds
            left_out = {*self.skipped, *self.unlike}
            counted = [i for i in self.window if i not in left_out and self.step_seconds[i] != pause]
            seen = [seconds[index] for index in counted]
            return sum(seen) / len(seen) * 1000
        assert name == "FLOPS"
        assert self.flops_per_step is not None, "FLOPS are counted whenever they are the metric"
        return self.flops_per_step / self.measurement.step_seconds

    def tells(self, name: str) -> bool:
        """Whether the run has a figure for a tuning metric."""
        if name == "FLOPS":
            return self.flops_per_step is not None
        return name not in PASSES or bool(self.pass_seconds.get(name))

    def to_json(self) -> dict[str, Any]:
        """DeepSpeed's keys first, then everything else; in seconds, bytes and milliseconds (`latency`)."""
        m = self.measurement
        return {
            **{key: self.metric(name) if self.tells(name) else None for name, key in DEEPSPEED_KEYS.items()},
            "step_seconds_interval_95": [m.step_seconds - m.half_width_seconds, m.step_seconds + m.half_width_seconds],
            **{name: getattr(self, name) for name in _PLAIN},
            "measurement": asdict(m),
            "engine": asdict(self.engine),
            "step_seconds": list(self.step_seconds),
            "pass_seconds": {name: list(seconds) for name, seconds in self.pass_seconds.items()},
            "skipped_steps": list(self.skipped),
            "unlike_steps": list(self.unlike),
            "nonfinite_losses": list(self.nonfinite),
            "state": self.state,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """dsopt stopped the run, because it could no longer become the best. It works; its figures say how slow it is.

    Attributes:
        so_far: what dsopt measured until then.
        best: the metric that it had to reach.
        bound: the metric that it could have reached at best, 99 % sure; None if an earlier version did not keep it.
        message: the same for people, with the most that it could have reached.
    """

    state: ClassVar = "slow"
    reason: ClassVar = "slow"
    so_far: Measured
    best: float
    message: str
    bound: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The figures so far, and what dsopt compared them with."""
        return self.so_far.to_json() | _ending(self) | {"slower_than": self.best, "bound": self.bound}


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """This configuration cannot run here: that is knowledge, not a failure."""

    state: ClassVar = "infeasible"
    reason: InfeasibleReason
    message: str

    def to_json(self) -> dict[str, Any]:
        """State, reason and message."""
        return _ending(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The run failed.

    Attributes:
        retryable: whether the script itself raised nothing.
        device: the GPU of this node that a `hardware` fault is of, by its index.
        node: the node that was lost.
    """

    state: ClassVar = "failed"
    reason: FailedReason
    message: str
    retryable: bool = False
    device: int | None = None
    node: str | None = None

    def to_json(self) -> dict[str, Any]:
        """State, reason and message."""
        return _ending(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """What ended or disturbed the run came from outside, as when a worker stops: it says nothing of its candidate."""

    state: ClassVar = "cancelled"
    reason: CancelledReason = "cancelled"
    message: str = "this worker ended it, because it was asked to stop or the study was over"

    def to_json(self) -> dict[str, Any]:
        """State, reason and message."""
        return _ending(self)


Outcome: TypeAlias = Measured | Slow | Infeasible | Failed | Cancelled


def figures_of(outcome: Measured | Slow) -> Measured:
    """The figures of a run, including one that was stopped because it was slow."""
    return outcome.so_far if isinstance(outcome, Slow) else outcome


def from_json(content: Mapping[str, Any]) -> Outcome:
    """The outcome that `to_json` wrote; earlier versions wrote fewer figures.

    Raises:
        KeyError: it is incomplete.
    """
    state, reason, message = content["state"], content.get("reason"), content.get("message") or ""
    if state == "measured":
        return _figures(content)
    if state == "slow":
        return Slow(so_far=_figures(content), best=content["slower_than"], bound=content.get("bound"), message=message)
    if state == "infeasible":
        return Infeasible(reason=cast(InfeasibleReason, reason), message=message)
    if state == "failed":
        return Failed(reason=cast(FailedReason, reason), message=message)
    assert state == "cancelled", state
    return Cancelled(reason=cast(CancelledReason, reason), message=message)


def _ending(outcome: Slow | Infeasible | Failed | Cancelled) -> dict[str, Any]:
    return {"state": outcome.state, "reason": outcome.reason, "message": outcome.message}


def _figures(content: Mapping[str, Any]) -> Measured:
    return Measured(
        measurement=Measurement(**content["measurement"]),
        step_seconds=tuple(content["step_seconds"]),
        engine=Engine(**content["engine"]),
        pass_seconds={name: tuple(seconds) for name, seconds in content["pass_seconds"].items()},
        skipped=tuple(content.get("skipped_steps", ())),
        unlike=tuple(content.get("unlike_steps", ())),
        nonfinite=tuple(content.get("nonfinite_losses", ())),
        **{name: content[name] for name in _PLAIN if name in content or name in _ALWAYS},
    )
