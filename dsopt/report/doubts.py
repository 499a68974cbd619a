"""What a reader should know of the quality of a study's numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from dsopt.experiment.health import remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuality:
    """How good the numbers of one run are.

    Attributes:
        name: the run.
        interval_percent: half-width of the 95 % interval of its mean step time.
        drifting: whether its steps still became slower or faster while they were measured.
        skipped_percent: of the steps after warm-up, those that the optimizer skipped.
        nonfinite_loss_percent: of the same, those whose loss was NaN or infinite.
        dtype: fp32, fp16 or bf16.
    """

    name: str
    interval_percent: float
    drifting: bool
    skipped_percent: float = 0.0
    nonfinite_loss_percent: float = 0.0
    dtype: str = "fp32"

    def is_doubtful(self, precision: float) -> bool:
        """Whether a reader should know of it; `precision` is the relative half-width asked for."""
        is_unsound = self.skipped_percent > 0 or self.nonfinite_loss_percent > 0
        return self.drifting or is_unsound or self.interval_percent > 100 * precision


def doubts_text(qualities: Sequence[RunQuality], precision: float) -> list[str]:
    """The doubts in words, a line for each kind, and what helps."""
    wide = [f"{q.name} ±{q.interval_percent:.1f} %" for q in qualities if q.interval_percent > 100 * precision]
    drifting = [q.name for q in qualities if q.drifting]
    nonfinite = [q for q in qualities if q.nonfinite_loss_percent > 0]
    skipped = [q for q in qualities if q.skipped_percent > 0]
    lines = []
    if wide:
        lines.append(f"Less precise than the ±{100 * precision:g} % asked for: {', '.join(wide)}.")
    if drifting:
        lines.append(f"Steps kept drifting while they were measured: {', '.join(drifting)}.")
    if nonfinite:
        runs = ", ".join(f"{q.name} ({q.nonfinite_loss_percent:.0f} % of its steps)" for q in nonfinite)
        lines.append(f"WARNING: the loss was NaN or infinite, so that nothing is learnt: {runs}.")
    if skipped:
        runs = ", ".join(f"{q.name} ({q.skipped_percent:.0f} % of its steps)" for q in skipped)
        lines.append(
            f"WARNING: steps were skipped, since their gradients were not finite; their times are left out: {runs}."
        )
    return lines + list(dict.fromkeys(remedy(q.dtype) for q in [*nonfinite, *skipped]))
