"""What a script cannot do, by crashes that say the same: what they have in common, and nothing that ran has.

One crash may be chance, and is its candidate's own. After a few that end with the same message, candidates with all
that sets these apart are left out: sizes of which less has run, stages at which, and settings with which, nothing has
run. Each further crash says more of what it is not. Only crashes on nodes where something ran count: a node may lack
what the script needs. Runs that hang count as crashes with one message.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dsopt.search.baseline_twin import own_value_test
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.tally import Tally, tallies
from dsopt.study.space import Candidate, Knob
from dsopt.study.spec import StudySpec

_ENOUGH: Final = 3  # crashes with one message
_PRODUCT: Final = "samples a step and rank"
_SIZES: Final[Mapping[str, Callable[[Candidate], int]]] = {
    "a micro-batch": lambda candidate: candidate.micro_batch,
    "an accumulation": lambda candidate: candidate.gas,
    _PRODUCT: lambda candidate: candidate.micro_batch * candidate.gas,
}
_ENDS: Final = ("crash", "timeout")
# numbers, addresses, and names that nobody gave
_VARIES: Final = re.compile(r"0x[0-9a-f]+|/tmp/\S+|\b(?=[0-9a-f-]*\d)[0-9a-f]{8}[0-9a-f-]*\b|\d+", re.IGNORECASE)
_Marks: TypeAlias = frozenset[tuple[str, Knob]]  # each setting, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """What sets crashes with one message apart from all that ran.

    Nobody knows which of it makes them crash, so only a candidate with all of it is left out.

    Attributes:
        message: that of the first of them; the others may have other numbers in it.
        most: of each size of which less has run, the largest that may still be tried: half-way, by its logarithm.
        stages: theirs, if nothing has run at any of these.
        marks: the settings that all of them have, and nothing that ran.
    """

    message: str
    most: Mapping[str, float]
    stages: frozenset[int]
    marks: _Marks

    def meets(self, candidate: Candidate) -> bool:
        """Whether a candidate has all of that."""
        is_large = all(_SIZES[name](candidate) > most for name, most in self.most.items())
        is_at = not self.stages or candidate.stage in self.stages
        return is_large and is_at and self.marks <= _marks(candidate)

    def __str__(self) -> str:
        told = [name for name in self.most if name != _PRODUCT] or list(self.most)
        what = [f"{name} above {math.floor(self.most[name])}" for name in told]
        what += [f"ZeRO {' or '.join(map(str, sorted(self.stages)))}"] if self.stages else []
        what += [f"{name} {value}" for name, value in sorted(self.marks, key=str)]
        return f"with {', '.join(what)} runs end so: {self.message.rstrip('.')}"


def common_crashes(spec: StudySpec, history: History) -> list[Crash]:
    """What crashes of a study have in common, for each message that came often enough."""
    shown = tallies(history, _Shown)
    sound = set[str]().union(*(one.nodes for one in shown))
    crashed = defaultdict[str, list[tuple[str, Candidate]]](list)
    for one in shown:
        for kind, message, candidate, nodes in one.crashes:
            if sound.issuperset(nodes):
                crashed[kind].append((message, candidate))
    often = [alike for alike in crashed.values() if len(alike) >= _ENOUGH]
    if not often:
        return []
    largest = {name: max(one.largest.get(name, 0) for one in shown) for name in _SIZES}
    ran_with = set[tuple[str, Knob]]().union(*(one.marks for one in shown))
    ran_at = set[int]().union(*(one.stages for one in shown))
    baseline = history.find(BASELINE)
    has_own = own_value_test(spec, baseline.facts) if baseline is not None and baseline.facts is not None else None
    found = []
    for alike in often:
        message, candidates = alike[0][0], [candidate for _, candidate in alike]
        marks = frozenset.intersection(*map(_marks, candidates)) - ran_with
        if has_own is not None:
            marks = frozenset((name, value) for name, value in marks if not has_own(name, value))
        stages = frozenset(candidate.stage for candidate in candidates)
        stages = frozenset() if stages & ran_at else stages
        most = _most(candidates, largest)
        if most or stages or marks:
            found.append(Crash(message=message, most=most, stages=stages, marks=marks))
    return found


def without_crashes(candidates: Iterable[Candidate], crashes: Sequence[Crash]) -> tuple[list[Candidate], list[Crash]]:
    """The candidates that meet none of these crashes, and the crashes for which others are left out."""
    kept, met = [], []
    for candidate in candidates:
        of_it = [crash for crash in crashes if crash.meets(candidate)]
        met += [crash for crash in of_it if crash not in met]
        if not of_it:
            kept.append(candidate)
    return kept, met


def with_crashes(verdict: str, crashes: Iterable[Crash]) -> str:
    """Why nothing more is tried, and what was left out for crashes of which that does not tell."""
    return "; ".join([verdict, *(str(crash) for crash in crashes if crash.message not in verdict)])


def _most(candidates: Sequence[Candidate], largest: Mapping[str, int]) -> dict[str, float]:
    least = {name: min(map(size, candidates)) for name, size in _SIZES.items()}
    return {name: max(ran, math.sqrt(least[name] * ran)) for name, ran in largest.items() if 0 < ran < least[name]}


def _marks(candidate: Candidate) -> _Marks:
    return frozenset(candidate.knobs)


class _Shown(Tally):
    """What runs have shown: crashes with their nodes; of what ran the largest sizes, stages, settings and nodes."""

    def __init__(self) -> None:
        self.crashes: list[tuple[str, str, Candidate, tuple[str, ...]]] = []  # message without what varies, and with
        self.largest: dict[str, int] = {}
        self.stages: set[int] = set()
        self.marks: set[tuple[str, Knob]] = set()
        self.nodes: set[str] = set()

    def add(self, run: Observation) -> None:
        if run.reason in _ENDS and run.candidate is not None:
            message = run.message.partition(" Log: ")[0]
            self.crashes.append((_VARIES.sub("#", message), message, run.candidate, tuple(run.ran_on)))
            return
        ran = run.candidate or (run.facts.candidate() if run.facts is not None else None)
        if ran is not None and (run.facts is not None or run.state == "measured"):
            self.nodes.update(run.ran_on)
            self.stages.add(ran.stage)
            self.marks |= _marks(ran)
            for name, size in _SIZES.items():
                self.largest[name] = max(self.largest.get(name, 0), size(ran))
