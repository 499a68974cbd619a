"""What a run has left in the working folder, as its trial keeps it."""

from collections.abc import Sequence

from dsopt.study.trial_attributes import TrialAttributes


def attributes_left(paths: Sequence[str], *, saves_in_place: bool) -> TrialAttributes:
    """What is written on a trial: paths in the working folder, and whether a run beside it would save there, too."""
    attrs = TrialAttributes()
    if paths:
        attrs["wrote_outside"] = ", ".join(paths)
    if saves_in_place:
        attrs["saves_in_place"] = True
    return attrs
