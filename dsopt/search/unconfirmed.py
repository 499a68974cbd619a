"""A search whose further runs failed: what it found is not a result, and dsopt does not present it as one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dsopt.search.disturbed import DISTURBED
from dsopt.search.history import BASELINE, History, Observation

# After so many failed finalists, something other than one configuration is wrong, and no further one is tried.
_MOST_FAILED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Unconfirmed:
    """What a search found that further runs could not confirm.

    Attributes:
        best: name of the best configuration of the search.
        value: its metric there.
        baseline: the baseline's, measured before the search; None if it does not run.
        failures: of further runs, each as the configuration's name, its round, and why.
    """

    best: str
    value: float
    baseline: float | None
    failures: Sequence[tuple[str, int, str]]


def failures(history: History) -> list[Observation]:
    """The further runs that failed."""
    return [o for o in history.reference if o.round >= 1 and o.state in ("failed", "infeasible")]


def left_out(history: History) -> list[Observation]:
    """For each finalist that failed, the run that did: the result does not cover that finalist."""
    return [next(o for o in failures(history) if o.name == name) for name in failed_finalists(history)]


def failed_finalists(history: History) -> list[str]:
    """Names of the finalists that failed in any round: others replace them."""
    return list(dict.fromkeys(o.name for o in failures(history) if o.name != BASELINE))


def failed_again(history: History) -> list[str]:
    """Those of them that had run before, here or in another study: not what only another tuner has measured."""
    ran = {o.name for o in history.everything if o.imported is None and o.value is not None}
    return [name for name in failed_finalists(history) if name in ran]


def failed_best(history: History) -> list[str]:
    """Those of them that were the best, or ran again because they might be.

    Not one that ran again because its only launch may have been disturbed, if that says no better of it than of others.
    """
    out = failed_finalists(history)
    doubted = set(out) - {o.name for o in failures(history) if o.why != DISTURBED}
    values = {o.name: history.score(o) for o in history.measured}
    least = max((value for name, value in values.items() if name not in out), default=-math.inf)
    return [name for name in failed_again(history) if name not in doubted or values.get(name, math.inf) >= least]


def may_replace(history: History) -> bool:
    """Whether another finalist may still replace one that failed."""
    return len(failed_best(history)) < _MOST_FAILED


def lacks_baseline(history: History) -> bool:
    """Whether the baseline runs, but no further run of it was measured."""
    first = history.find(BASELINE)
    again = [o for o in history.reference if o.name == BASELINE and o.round >= 1 and o.value is not None]
    return first is not None and first.value is not None and not again


def unconfirmed(history: History) -> Unconfirmed | None:
    """What the search found, if it is no result: further runs failed, and left nothing to compare.

    That is the baseline if its own further runs failed, or everything beside it.
    """
    failed = failures(history)
    out = failed_finalists(history)
    firsts = [history.measured_here(o) for o in history.observations if o.imported is not None]
    first = {(o.name, o.round) for o in firsts}
    again = [o for o in history.reference if o.round >= 1 and o.value is not None and o.name not in out]
    again = [o for o in again if (o.name, o.round) not in first]
    is_baseline_out = any(o.name == BASELINE for o in failed) and lacks_baseline(history)
    is_best_out = bool(failed_best(history)) and all(o.name == BASELINE for o in again)
    if not is_baseline_out and not is_best_out:
        return None
    here = [o for o in history.measured if o.imported is None and o.taken_over is None]
    measured = here or [o for o in history.measured if o.imported is None] or history.measured
    best = max(measured, key=history.score, default=None)
    if best is None or best.value is None:
        return None
    baseline = history.find(BASELINE)
    return Unconfirmed(
        best=best.name,
        value=best.value,
        baseline=baseline.value if baseline else None,
        failures=[(o.name, o.round, o.message) for o in failed],
    )
