"""The question to a tuner: which of these candidates to try first."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dsopt.search.forecast import Forecast
from dsopt.search.history import Observation
from dsopt.study.space import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice among candidates of one ZeRO stage.

    Attributes:
        candidates: what may be tried now, in the order of enumeration.
        observations: of that stage so far.
        maximize: whether a larger metric is better.
        trial: number of the trial to choose for, which seeds any randomness.
        forecast: what the models of `model_based` predict; None if they were not asked.
    """

    candidates: Sequence[Candidate]
    observations: Sequence[Observation]
    maximize: bool
    trial: int
    forecast: Forecast | None = None


# the candidates in the order in which to try them; the first that nobody else has claimed is run
Tuner: TypeAlias = Callable[[Choice], Iterable[Candidate]]
