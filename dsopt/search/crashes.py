"""What a script cannot do, by crashes that say the same: what they have in common, and nothing that ran has.

One crash may be chance, and is its candidate's own. After a few that end with the same message, candidates with all
that sets these apart are left out: sizes of which less has run, a stage or settings with which nothing has run. Each
further crash says more of what it is not.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dsopt.search.history import History, Observation
from dsopt.search.tally import Tally, tallies
from dsopt.study.space import Candidate

_ENOUGH: Final = 3  # crashes with one message
_SIZES: Final[Mapping[str, Callable[[Candidate], int]]] = {
    "a micro-batch": lambda candidate: candidate.micro_batch,
    "an accumulation": lambda candidate: candidate.gas,
    "samples a step and rank": lambda candidate: candidate.micro_batch * candidate.gas,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """What sets crashes with one message apart from all that ran.

    Attributes:
        message: that of the first of them; the others may have other numbers in it.
        most: the largest size that may still be tried, by its name.
        marks: the stage and settings that all of them have, and nothing that ran.
    """

    message: str
    most: Mapping[str, float]
    marks: frozenset[tuple[str, Any]]

    def meets(self, candidate: Candidate) -> bool:
        """Whether a candidate has all that sets them apart."""
        is_large = all(_SIZES[name](candidate) > most for name, most in self.most.items())
        return is_large and self.marks <= _marks(candidate)


def common_crashes(history: History) -> list[Crash]:
    """What crashes of a study have in common, for each message that came often enough."""
    shown = tallies(history, _Shown)
    ran = {name: max(one.largest.get(name, 0) for one in shown) for name in _SIZES}
    with_which = frozenset[tuple[str, Any]]().union(*(one.marks for one in shown))
    crashed = defaultdict[str, list[tuple[str, Candidate]]](list)
    for one in shown:
        for message, candidate in one.crashes:
            crashed[re.sub(r"\d+", "#", message)].append((message, candidate))
    found = []
    for alike in crashed.values():
        message, candidates = alike[0][0], [candidate for _, candidate in alike]
        least = {name: min(map(size, candidates)) for name, size in _SIZES.items()}
        most = {name: max(ran[name], math.sqrt(least[name] * ran[name])) for name in _SIZES if least[name] > ran[name]}
        marks = frozenset.intersection(*map(_marks, candidates)) - with_which
        if len(candidates) >= _ENOUGH and (most or marks):
            found.append(Crash(message=message, most=most, marks=marks))
    return found


def crashes_text(history: History) -> str | None:
    """What keeps crashing, in words, if anything does."""
    words = [_text(crash) for crash in common_crashes(history)]
    return "; ".join(words) or None


def _text(crash: Crash) -> str:
    size = next(iter(crash.most.items()), None)
    what = [f"{size[0]} above {math.floor(size[1])}"] if size else []
    what += [f"ZeRO {value}" if name == _STAGE else f"{name}: {value}" for name, value in sorted(crash.marks, key=str)]
    return f"with {', '.join(what)} runs end so: {crash.message.rstrip('.')}"


_STAGE: Final = "stage"


def _marks(candidate: Candidate) -> frozenset[tuple[str, Any]]:
    return frozenset({(_STAGE, candidate.stage), *candidate.knobs})


class _Shown(Tally):
    """What runs have shown: crashes, and of what ran the largest sizes, stages and settings."""

    def __init__(self) -> None:
        self.crashes: list[tuple[str, Candidate]] = []
        self.largest: dict[str, int] = {}
        self.marks: set[tuple[str, Any]] = set()

    def add(self, run: Observation) -> None:
        candidate = run.candidate
        if run.reason == "crash" and candidate is not None:
            self.crashes.append((run.message.partition(" Log: ")[0], candidate))
        elif run.facts is not None:
            ran = candidate or run.facts.candidate()
            self.marks |= _marks(ran)
            for name, size in _SIZES.items():
                self.largest[name] = max(self.largest.get(name, 0), size(ran))
