"""How good the numbers of one run are."""

from dataclasses import dataclass
from typing import Final

from dsopt.study.step_noise import StepNoise
from dsopt.study.trial_attributes import TrialAttributes

MOST_EVALUATION: Final = 5.0  # percent
MOST_SHORT: Final = 3.0  # percent


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuality:
    """How good the numbers of one run are.

    Attributes:
        name: the run.
        interval_percent: half-width of the 95 % interval of its mean step time.
        drifting: whether its steps still became slower or faster during the measurement.
        read_ahead: the first steps, if they count although they were fed with what was read while the script began.
        growth_percent: by how much its last samples had more elements than its first; 0 without a trend.
        short_percent: by how much its figures are better than with the steps that were fed less, which they leave out.
        pause_seconds: the one step that the mean leaves out because it was so long; 0 if there was none.
        evaluation_percent: share of its time in passes without gradients between steps, which the figures leave out.
        skipped_percent: share of the steps after warm-up that the optimizer skipped.
        nonfinite_loss_percent: share of the same steps whose loss was NaN or infinite.
        dtype: fp32, fp16 or bf16.
    """

    name: str
    interval_percent: float
    drifting: bool
    read_ahead: int = 0
    growth_percent: float = 0.0
    short_percent: float = 0.0
    pause_seconds: float = 0.0
    evaluation_percent: float = 0.0
    skipped_percent: float = 0.0
    nonfinite_loss_percent: float = 0.0
    dtype: str = "fp32"

    @property
    def is_doubtful(self) -> bool:
        """Whether a reader should know about it; intervals say how precise it is."""
        leaves_out = self.pause_seconds > 0 or self.evaluation_percent > MOST_EVALUATION
        leaves_out = leaves_out or self.short_percent > MOST_SHORT
        is_unsound = self.skipped_percent > 0 or self.nonfinite_loss_percent > 0
        return self.drifting or self.read_ahead > 0 or leaves_out or is_unsound


def quality_of(attrs: TrialAttributes) -> RunQuality | None:
    """That of a measured trial; None if no run of this study measured it."""
    if "interval_percent" not in attrs or {"measured_as", "imported"} & attrs.keys():
        return None
    return RunQuality(
        name=run_label(attrs.get("candidate", "?"), attrs.get("round", 0)),
        interval_percent=attrs["interval_percent"],
        drifting=attrs.get("drifting", False),
        read_ahead=attrs.get("read_ahead", 0),
        growth_percent=attrs.get("growth_percent", 0.0),
        short_percent=attrs.get("short_percent", 0.0),
        pause_seconds=attrs.get("pause_seconds", 0.0),
        evaluation_percent=attrs.get("evaluation_percent", 0.0),
        skipped_percent=attrs.get("skipped_percent", 0.0),
        nonfinite_loss_percent=attrs.get("nonfinite_loss_percent", 0.0),
        dtype=attrs.get("dtype", "fp32"),
    )


def run_label(name: str, round_: int) -> str:
    """The name of a run for people: its candidate, and its round in the confirmation."""
    return f"{name} (round {round_})" if round_ else name


def noise_of(attrs: TrialAttributes) -> StepNoise | None:
    """How much a run's steps differed; None if it says nothing of that, as those of earlier versions."""
    if not attrs.get("step_deviation_percent") or not attrs.get("measured_steps"):
        return None
    return StepNoise(
        deviation=attrs["step_deviation_percent"] / 100,
        correlation=attrs.get("step_correlation", 0.0),
        steps=attrs["measured_steps"],
    )
