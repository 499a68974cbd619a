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
_RARE: Final = 3  # so many others for one that is unlike them
_PRODUCT: Final = "samples a step and rank"
_SIZES: Final[Mapping[str, Callable[[Candidate], int]]] = {
    "a micro-batch": lambda candidate: candidate.micro_batch,
    "an accumulation": lambda candidate: candidate.gas,
    _PRODUCT: lambda candidate: candidate.micro_batch * candidate.gas,
}
_ENDS: Final = ("crash", "timeout")
# numbers but those of signals, addresses, and names that nobody gave
_VARIES: Final = re.compile(
    r"0x[0-9a-f]+|/tmp/\S+|\b(?=[0-9a-f-]*\d)[0-9a-f]{8}[0-9a-f-]*\b|(?<!signal )(?<!\d)\d+", re.IGNORECASE
)
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
        met_at: the stages at which it was met.
    """

    message: str
    most: Mapping[str, float]
    stages: frozenset[int]
    marks: _Marks
    met_at: frozenset[int]

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


def kind_of(message: str) -> str:
    """What a crash says, without what differs between runs."""
    return _VARIES.sub("#", message.partition(" Log: ")[0])


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
    ran = _Ran.of(spec, history, shown)
    found = []
    for alike in often:
        message, candidates = alike[0][0], [candidate for _, candidate in alike]
        at = {stage: [one for one in candidates if one.stage == stage] for stage in {one.stage for one in candidates}}
        parts = [(candidates, None), *((those, stage) for stage, those in at.items() if len(at) > 1)]
        crashes = [ran.apart(message, those, stage) for those, stage in parts if len(those) >= _ENOUGH]
        found += [crash for crash in crashes if crash is not None]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """What has run: the largest sizes at each stage, the smallest at any, settings, and which are the user's own."""

    largest: Mapping[int, Mapping[str, int]]
    smallest: Mapping[str, int]
    marks: _Marks
    has_own: Callable[[str, Knob], bool] | None

    @classmethod
    def of(cls, spec: StudySpec, history: History, shown: Sequence["_Shown"]) -> "_Ran":
        largest: dict[int, dict[str, int]] = {}
        for one in shown:
            for stage, sizes in one.largest.items():
                at = largest.setdefault(stage, {})
                at.update({name: max(size, at.get(name, 0)) for name, size in sizes.items()})
        baseline = history.find(BASELINE)
        facts = baseline.facts if baseline is not None else None
        has_own = None if facts is None else own_value_test(spec, facts)
        smallest = {name: min(one.smallest[name] for one in shown if one.smallest) for name in _SIZES if largest}
        marks = frozenset().union(*(one.marks for one in shown))
        return cls(largest=largest, smallest=smallest, marks=marks, has_own=has_own)

    def apart(self, message: str, candidates: Sequence[Candidate], stage: int | None) -> Crash | None:
        """What sets crashes apart from all that ran or, if they are of one stage, from what ran at that; None: nothing.

        Where nothing has run at their stages, sizes down to the smallest that ran elsewhere may still.
        What crashed although it was no larger is left out if it is rare: it may be chance, or have another cause.
        """
        stages = frozenset(one.stage for one in candidates)
        has_run = not stages.isdisjoint(self.largest)
        those = [sizes for at, sizes in self.largest.items() if stage in (None, at)]
        largest = {name: max(sizes[name] for sizes in those) for name in _SIZES} if has_run else self.smallest
        beyond = [one for one in candidates if any(size(one) > largest.get(name, 0) for name, size in _SIZES.items())]
        if len(beyond) >= max(_ENOUGH, _RARE * (len(candidates) - len(beyond))):
            candidates = beyond
        marks = frozenset.intersection(*map(_marks, candidates)) - self.marks
        if self.has_own is not None:
            marks = frozenset((name, value) for name, value in marks if not self.has_own(name, value))
        most = _most(candidates, largest)
        says_nothing = not (most or marks) and has_run
        at = frozenset() if stage is None and has_run else stages
        return None if says_nothing else Crash(message=message, most=most, stages=at, marks=marks, met_at=stages)


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
        self.largest: dict[int, dict[str, int]] = {}  # at each stage
        self.smallest: dict[str, int] = {}  # at any
        self.marks: set[tuple[str, Knob]] = set()
        self.nodes: set[str] = set()

    def add(self, run: Observation) -> None:
        if run.imported is not None:
            return
        if run.reason in _ENDS and run.candidate is not None:
            message = run.message.partition(" Log: ")[0]
            self.crashes.append((kind_of(message), message, run.candidate, tuple(run.ran_on)))
            return
        ran = run.candidate or (run.facts.candidate() if run.facts is not None else None)
        if ran is not None and (run.facts is not None or run.state == "measured"):
            self.nodes.update(run.ran_on)
            self.marks |= _marks(ran)
            at = self.largest.setdefault(ran.stage, {})
            at.update({name: max(at.get(name, 0), size(ran)) for name, size in _SIZES.items()})
            least = self.smallest
            least.update({name: min(least.get(name, size(ran)), size(ran)) for name, size in _SIZES.items()})
