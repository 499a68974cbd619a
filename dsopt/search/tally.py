"""What the runs of a study come to, added up so that each is looked at once: many claims ask, and few runs are new."""

import copy
import operator
from collections.abc import Sequence
from itertools import takewhile
from typing import TypeVar

from dsopt.search.history import History, Observation

T = TypeVar("T", bound="Tally")


class Tally:
    """What some runs come to. Its attributes are plain values, and lists, sets and dictionaries of such."""

    def add(self, run: Observation) -> None:
        """Takes in one more run, later ones last."""
        raise NotImplementedError

    def copied(self: T) -> T:
        """One that may be added to without changing this one."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list | set | dict):
                setattr(other, name, value.copy())
        return other


def tally(history: History, stage: int | None, kind: type[T]) -> T:
    """What the runs of a stage come to; None: the reference runs.

    The runs before the first that still goes on are added only once for all histories of one reader.
    """
    runs = history.reference if stage is None else history.stages[stage]
    over, total = _kept(history, (kind, stage), runs)
    if total is None:
        over, total = [], kind()
    new = list(takewhile(lambda run: run.state != "running", runs[len(over) :]))
    if new:
        total = total.copied()
        for run in new:
            total.add(run)
        history.learnt[kind, stage] = (runs[: len(over) + len(new)], total)
    rest = runs[len(over) + len(new) :]
    if rest:
        total = total.copied()
        for run in rest:
            total.add(run)
    return total


def tallies(history: History, kind: type[T]) -> list[T]:
    """What the reference runs come to, and those of each stage."""
    return [tally(history, stage, kind) for stage in (None, *history.stages)]


def _kept(
    history: History, key: tuple[type[T], int | None], runs: Sequence[Observation]
) -> tuple[Sequence[Observation], T | None]:
    """The first runs that were added up before, and what they came to."""
    kept = history.learnt.get(key)
    if not isinstance(kept, tuple):
        return [], None
    over, total = kept
    is_same = len(over) <= len(runs) and all(map(operator.is_, over, runs))
    return (over, total) if is_same else ([], None)
