"""How long a study took: the time during which runs ran, and the time from its creation to its end."""

import datetime
from collections.abc import Iterable

# the summary adds the wall clock if it exceeds the time of runs by more than both of these
_MUCH_SECONDS = 60.0
_MUCH = 0.1


def covered_seconds(intervals: Iterable[tuple[float, float]]) -> float:
    """Seconds that at least one of these intervals covers; each is a start and an end, in seconds."""
    total, covered_until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, covered_until))
        covered_until = max(covered_until, end)
    return total


def duration_text(worked_seconds: float, wall_seconds: float) -> str:
    """The time of runs as DeepSpeed prints it, with the wall clock if that is much longer."""
    text = _clock(worked_seconds)
    apart = wall_seconds - worked_seconds
    if apart > max(_MUCH_SECONDS, _MUCH * worked_seconds):
        text += f" of runs ({_clock(round(wall_seconds))} from the study's creation to its end)"
    return text


def _clock(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds, 6)))


def short_duration(seconds: float) -> str:
    """A time as people say it: `12 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
