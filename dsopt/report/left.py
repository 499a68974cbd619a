"""What is left of a study, in words: runs, and how long they will take at the pace so far."""

from dataclasses import dataclass
from typing import Final

from dsopt.search.history import History, Observation
from dsopt.search.left import runs_left
from dsopt.search.run_cost import whole_seconds
from dsopt.study.spec import StudySpec

ON_CLUSTER: Final = "on the cluster"  # where a dry run would take the time that is said
# Runs to come take between these times the mean of those so far, in total.
_SHORTER: Final = 0.75
_LONGER: Final = 1.4
_IN_SECONDS: Final = 120.0  # longer times are told in minutes
_IN_MINUTES: Final = 7200.0  # and longer ones in hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is left: runs, and seconds, each at least and at most; no seconds while no run has ended.

    Of a dry run (`is_simulated`), the seconds are those that the runs would take on the cluster.
    """

    fewest: int
    most: int
    seconds: tuple[float, float] | None
    is_simulated: bool = False

    def text(self) -> str:
        """In words, such as `about 3 to 9 runs, 2 to 8 min left`."""
        if not self.fewest:
            runs = f"probably at most {_counted(self.most)}"
        elif self.fewest == self.most:
            runs = _counted(self.most)
        else:
            runs = f"about {self.fewest} to {_counted(self.most)}"
        if self.seconds is None:
            return f"{runs} left"
        low, high = self.seconds
        time = time_range(low if self.fewest else high, high)
        return f"{runs} left, {time} {ON_CLUSTER}" if self.is_simulated else f"{runs}, {time} left"


def what_is_left(spec: StudySpec, history: History, pace: float | None = None) -> Left | None:
    """What is left of a study that goes on; None if nothing is, or nothing true can be said.

    Args:
        spec: the study.
        history: what counts of it.
        pace: seconds from the end of one run to the end of the next, if somebody has watched; shorter than a run where
            several go on at once, and longer where something lies between them. That of a dry run says nothing.
    """
    found = runs_left(spec, history)
    if found is None or not found.most:
        return None
    took = mean_seconds(spec, history)
    if took is None:
        return Left(fewest=found.fewest, most=found.most, seconds=None)
    is_simulated = spec.simulation is not None
    seen = took if pace is None or is_simulated else pace
    return Left(
        fewest=found.fewest,
        most=found.most,
        seconds=(_SHORTER * found.fewest * min(took, seen), _LONGER * found.most * max(took, seen)),
        is_simulated=is_simulated,
    )


def mean_seconds(spec: StudySpec, history: History) -> float | None:
    """How long a run of the study has taken on average, or would on the cluster; None while none has ended."""
    seconds = _seconds(spec, history)
    return sum(seconds) / len(seconds) if seconds else None


def cluster_seconds(spec: StudySpec, history: History) -> float:
    """How long the runs of a dry run would have taken on the cluster, one after the other."""
    return sum(_seconds(spec, history))


def launches_in_seconds(spec: StudySpec, history: History) -> list[tuple[Observation, float]]:
    """The runs that have ended, each with its seconds; of a dry run, those that it would take on the cluster."""
    ended = [o for o in history.everything if o.seconds is not None and o.is_spent and o.state != "running"]
    return [(o, whole_seconds(spec, o)) for o in ended]


def _seconds(spec: StudySpec, history: History) -> list[float]:
    return [seconds for _, seconds in launches_in_seconds(spec, history)]


def time_range(low: float, high: float) -> str:
    """A range of seconds as people say it: `20 to 90 s`, `2 to 8 min`, `1.5 to 3 h`; rounded outwards."""
    if high < _IN_SECONDS:
        digits, unit, each = 0, "s", 1.0
    elif high < _IN_MINUTES:
        digits, unit, each = 0, "min", 60.0
    else:
        digits, unit, each = 1, "h", 3600.0
    scale = 10**digits
    first, last = int(low / each * scale) / scale, -int(-high / each * scale // 1) / scale
    shown = [f"{value:.{digits}f}" for value in (first, last)]
    if low == high or shown[0] == shown[1]:
        return f"{shown[1]} {unit}"
    return f"{shown[0]} to {shown[1]} {unit}" if first else f"up to {shown[1]} {unit}"


def _counted(runs: int) -> str:
    return f"{runs} run{'s' * (runs != 1)}"
