"""What the search has to reach, by cases, mode and noise."""

from dataclasses import dataclass

from benchmarks.search.results import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """Ratios to DeepSpeed's tuner are of sums over cases.

    Attributes:
        launches, seconds: at most, against its own.
        reaching: seconds until the best so far is as good as its choice, at most, against all of its own.
        choice, worst: of the oracle's throughput, at least.
        baseline: the worst choice, of the user's own throughput, at least.
        ooms: launches out of memory a study, at most.
    """

    launches: float
    seconds: float
    reaching: float
    choice: float
    worst: float = 0.94
    baseline: float = 0.995
    ooms: float = 0.12


def goals_of(row: Row) -> Goals:
    """The goals of the set of cases, mode and noise level that a row belongs to."""
    is_quiet = row.noise is None or row.noise <= 0.02
    choice = (0.993 if is_quiet else 0.990) if row.is_fast else (0.988 if is_quiet else 0.985)
    if row.cases.startswith("measured"):
        return Goals(launches=0.5, seconds=0.5, reaching=0.30 if is_quiet else 0.45, choice=0.99, ooms=0.3)
    launches, quiet, noisy = (0.33, 0.30, 0.42) if row.cases == "published" else (0.38, 0.45, 0.65)
    return Goals(
        launches=launches,
        seconds=quiet if is_quiet else noisy,
        reaching=0.30 if is_quiet else 0.45,
        choice=choice,
    )
