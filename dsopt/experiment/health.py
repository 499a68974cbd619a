"""Checks that the steps behind a figure were real: applied by the optimizer, with a finite loss."""

from typing import Final

from dsopt.experiment.outcome import Infeasible, Measured
from dsopt.experiment.remedy import remedy
from dsopt.experiment.rules import RunRules
from dsopt.experiment.seen import Seen

_FEW: Final = 0.1  # of the steps after warm-up; a single one is never more than a few
_MOST: Final = 0.5
# From 2^32, the largest initial loss scale that is advised, 32 halvings lead to 1, and hysteresis is 2 by default.
_HOPELESS_STEPS: Final = 40
# in fp16 the loss scale overflowed; at some stages DeepSpeed also checks gradients of fp32 and bf16
_WHY_SKIPPED: Final = "their gradients were not finite"
_FEWEST_APPLIED: Final = 2  # with fewer there is no interval


def is_sound(figures: Measured) -> bool:
    """Whether the optimizer applied nearly all steps after warm-up, and their losses were finite."""
    return has_settled(figures) and not _are_many(figures.nonfinite_share, figures)


def has_settled(figures: Measured) -> bool:
    """Whether the loss scale has settled: the optimizer applied nearly all steps after warm-up."""
    return not _are_many(figures.skipped_share, figures)


def unsound(figures: Measured, rules: RunRules) -> Infeasible | None:
    """Why dsopt refuses a figure, if so.

    The figure already leaves out skipped steps. If most steps were skipped, the rest says nothing. If a few were, the
    loss scale has not settled. If the loss is not finite, the model learns nothing. The user's own run is taken as it
    is, as the standard for all others.
    """
    dtype, count = figures.engine.dtype, len(figures.window)
    if figures.skipped_share > _MOST or (rules.must_be_sound and not has_settled(figures)):
        skipped = figures.skipped_steps
        told = f"the optimizer skipped {skipped} of {count} steps after warm-up: {_WHY_SKIPPED}"
        return Infeasible(reason="overflow", message=f"{told}. {remedy(dtype)}")
    if rules.must_be_sound and not is_sound(figures):
        told = f"the loss of {figures.nonfinite_steps} of {count} steps after warm-up was NaN or infinite"
        return Infeasible(reason="nonfinite_loss", message=f"{told}. {remedy(dtype)}")
    return None


def never_trains(seen: Seen, rules: RunRules, *, is_over: bool) -> Infeasible | None:
    """Says if skipped steps leave nothing to measure: there is no loss scale left to try, or no step left to do.

    `is_over`: the run does no more steps.
    """
    steps = len(seen.steps)
    first, last = rules.window or (rules.floor[0], rules.measurement.max_steps - 1)
    in_a_row = next((count for count, step in enumerate(reversed(seen.steps)) if not step.skipped), steps)
    window = seen.steps[first : last + 1]
    skipped = sum(step.skipped for step in window)
    is_spent = (is_over or steps > last) and skipped > 0 and len(window) - skipped < _FEWEST_APPLIED
    if seen.engine is None or not (is_spent or in_a_row >= _HOPELESS_STEPS):
        return None
    which = f"{skipped} of {len(window)} steps after warm-up" if is_spent else f"the last {in_a_row} steps"
    message = f"the optimizer skipped {which}: {_WHY_SKIPPED}. {remedy(seen.engine.dtype)}"
    return Infeasible(reason="overflow", message=message)


def _are_many(share: float, figures: Measured) -> bool:
    return share > max(_FEW, 1 / len(figures.window))
