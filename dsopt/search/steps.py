"""What a plan may ask for next."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dsopt.search.forecast import Forecast
from dsopt.search.memory import MemoryModel
from dsopt.study.space import Candidate
from dsopt.study.trial_attributes import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReference:
    """Run the user's configuration, the least-memory profile, or a finalist again.

    Attributes:
        why: if that needs words.
        avoid: nodes that should leave it to others.
        on: nodes to which all others should leave it; without any of them, `avoid` counts.
    """

    name: str
    round: int
    candidate: Candidate | None
    why: str | None = None
    avoid: Sequence[str] = ()
    on: Sequence[str] = ()

    def left_by(self, nodes: Iterable[str]) -> set[str]:
        """Those of some nodes that should leave it to others."""
        given = set(nodes)
        wanted = given.intersection(self.on)
        return given - wanted if wanted else given.intersection(self.avoid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explore:
    """Try one of these candidates.

    In the "range" phase there is just one, and patience does not count yet; in the "joint" phase patience counts over
    all stages. `memory` says whether one fits; `forecast` guides the choice among them, if the models are asked.
    """

    stage: int
    candidates: Sequence[Candidate]
    phase: Phase
    memory: MemoryModel
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseStage:
    """A stage is done; the verdict says why, for people."""

    stage: int
    verdict: str


@dataclass(frozen=True, slots=True)
class Wait:
    """What comes next depends on another worker's current run."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Everything has been measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The study cannot continue before the user has fixed something."""

    message: str


Step: TypeAlias = RunReference | Explore | CloseStage | Wait | Finish | GiveUp
