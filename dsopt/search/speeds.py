"""What the runs of a study have shown of each configuration's speed, and of how much steps and launches differ."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.search.baseline_twin import baseline_test
from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.odd_runs import agreeing, differ_oddly, stands_alone, with_oddness, without_odd
from dsopt.search.places import here, is_elsewhere, is_imported, places_of, source_of
from dsopt.search.speed import log_score
from dsopt.search.unconfirmed import failed_finalists
from dsopt.study.launch_noise import STEPS_UNTOLD, USUAL
from dsopt.study.node_rates import behind
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from dsopt.study.step_noise import mean_deviation, pooled

Array = NDArray[np.float64]

_NOWHERE: Final = Candidate(stage=0, micro_batch=1, gas=1)  # of what no model is asked
# By how much another tuner's figures are too good differs: they cover a few steps without data loading.
_IMPORTED: Final = 0.1
# Launches may differ by any of these factors more than usual: equally likely by any up to six times, which is 4 %, and
# ever less likely by more. A study has few launches of one configuration, so its intervals are those of this mixture,
# much like Student's t (docs/benchmarks.md has how often they hold where launches differ by 0.5, 2 and 5 %).
FACTORS: Final = 2.0 ** np.arange(-1.5, 7.5, 0.5)
_BELIEF: Final = np.exp(-0.5 * (np.maximum(0.0, np.log2(FACTORS) - 2.5) / 0.8) ** 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the runs of one configuration have shown, n of them.

    Attributes:
        name: of the candidate, or `baseline`, or `profile`.
        candidate: the configuration as a point of the space.
        scores: of each run (`search/speed.py`), `(n,)`.
        variances: what the steps of each leave open, `(n,)`.
        ran_on: the places of each, as far as they are known (`search/places.py`), `(n,)`.
        orders: the place of each among all that has ended (`Observation.order`), `(n,)`.
        is_own: whether one of them is the run that shows model and devices.
        may_win: whether it may be chosen: a run here has measured it, and none has failed since.
        is_stopped: whether it may not only because its runs were stopped as too slow.
        is_to_measure: whether another tuner has measured it, and no run here was begun.
        is_steady: whether its launches agree, but for an odd one, while not all of the study's do.
    """

    name: str
    candidate: Candidate
    scores: Sequence[float]
    variances: Sequence[float]
    ran_on: Sequence[tuple[str, ...]]
    is_own: bool
    may_win: bool
    orders: Sequence[float] = ()
    is_to_measure: bool = False
    is_stopped: bool = False
    is_steady: bool = False

    @property
    def launches(self) -> int:
        """How many of its figures dsopt has measured, here or in another study."""
        return sum(not any(map(is_imported, places)) for places in self.ran_on)

    @property
    def places(self) -> set[str]:
        """All places that its figures are from."""
        return {place for places in self.ran_on for place in places}

    @property
    def sources(self) -> set[str]:
        """Where they are from, whatever the node (`source_of`)."""
        return set(map(source_of, self.places))

    @property
    def ran_here(self) -> list[tuple[str, ...]]:
        """The nodes of each of its runs in this study."""
        return here(self.ran_on)

    @property
    def contradicts_itself(self) -> bool:
        """Whether its runs, all on the same nodes, differ by more than launches do."""
        return len(set(self.ran_on)) == 1 and differ_oddly(self.scores, self.variances)

    @property
    def settled_at(self) -> float | None:
        """The order of the first launch that is no odd one, if others came before it: the machine may have changed."""
        if not self.orders:
            return None
        usual = self._usual
        first = min((self.orders[index] for index in usual), default=math.inf)
        odd = [order for index, order in enumerate(self.orders) if index not in usual]
        return first if odd and min(odd) < first else None

    @property
    def fastest_is_alone(self) -> bool:
        """Whether the fastest of its three runs, all on the same nodes, is far above the others, which agree."""
        return stands_alone(self.scores, self.variances, self.ran_on)

    @property
    def agrees_with_itself(self) -> bool:
        """Whether it has several runs, all on the same nodes, that differ by no more, but for an odd one."""
        usual = self._usual
        are_alike = len(usual) > 1 and len(set(self.ran_on)) == 1
        return are_alike and not differ_oddly([self.scores[i] for i in usual], [self.variances[i] for i in usual])

    @property
    def _usual(self) -> list[int]:
        """The indices of its runs that are no odd ones."""
        return without_odd(self.scores, self.variances, self.ran_on)

    def mean(self, launches: float) -> tuple[float, float]:
        """The mean score and its variance, if launches differ by this standard deviation."""
        own = agreeing(launches, [self.scores[index] for index in self._usual]) if self.is_steady else launches
        weights = 1.0 / (with_oddness(self.scores, self.variances, self.ran_on) + own**2)
        return float(weights @ np.array(self.scores) / weights.sum()), float(1.0 / weights.sum())

    def log_likelihood(self, launches: float) -> float:
        """How well such launches explain the differences between its runs, whatever its true score."""
        if len(self.scores) < 2:
            return 0.0
        variances = np.array(self.variances) + launches**2
        off = np.array(self.scores) - float((1.0 / variances) @ np.array(self.scores) / (1.0 / variances).sum())
        return -0.5 * float((off**2 / variances + np.log(variances)).sum() + np.log((1.0 / variances).sum()))


class Speeds:
    """What the runs of a study show of speed.

    Args:
        spec, history: of the study.
        facts: of its baseline; None of a comparison, whose configurations need have no place in one space.

    Attributes:
        noise: of steps, from all runs together.
        shown: of each configuration that has a figure.
        behind: how far each node is behind usual ones by what was measured of them before runs (`node_rates.behind`).
    """

    def __init__(self, spec: StudySpec, facts: ModelFacts | None, history: History) -> None:
        is_twin = baseline_test(spec, history)
        runs = [
            o
            for o in history.everything
            if _value(o) is not None
            and (facts is None or _is_placed(o))
            and not (_ran_here(o) and is_twin(o.candidate))
        ]
        rates = {o.ran_on[0]: o.node_rates for o in sorted(runs, key=lambda o: o.order) if o.node_rates and o.ran_on}
        self.behind = behind(rates)
        self.noise = pooled(o.noise for o in runs if o.noise is not None)
        out, telling = {"profile", *(failed_finalists(history) if facts is not None else ())}, history.telling_run
        tried_here = {o.name for o in history.everything if o.imported is None}
        of_each: dict[str, list[Observation]] = {}
        for o in runs:
            of_each.setdefault(BASELINE if not _ran_here(o) and is_twin(o.candidate) else o.name, []).append(o)
        shown = [
            Shown(
                name=name,
                candidate=_candidate([o for o in seen if o.name == name], facts),
                scores=log_score(spec, np.array([_value(o) for o in seen], dtype=float)).tolist(),
                variances=[self._variance(o) for o in seen],
                ran_on=[places_of(o) for o in seen],
                orders=[o.order for o in seen],
                is_own=any(o is telling for o in seen),
                may_win=name not in out and any(o.state == "measured" and o.imported is None for o in seen),
                is_to_measure=name not in tried_here,
                is_stopped=name not in out and {o.state for o in seen if o.imported is None} == {"slow"},
            )
            for name, seen in of_each.items()
        ]
        self.shown: list[Shown] = _with_steadiness(shown)

    @property
    def places(self) -> set[str]:
        """All places that figures are from."""
        return set[str]().union(*(each.places for each in self.shown))

    @property
    def nodes(self) -> set[str]:
        """The names of all nodes that runs of this study with a figure were on."""
        return {name for name in self.places if not is_elsewhere(name)}

    def corrected(self, shown: list[Shown]) -> "Speeds":
        """The same with other scores, which say something else of how much launches differ."""
        other = copy.copy(self)
        other.shown = shown
        vars(other).pop("launches", None)
        return other

    @cached_property
    def launches(self) -> Array:
        """Probability of each of `FACTORS`, from what was launched more than once."""
        return launches_by([sum(s.log_likelihood(USUAL * factor) for s in self.shown) for factor in FACTORS])

    @property
    def launch_deviation(self) -> float:
        """By how much launches most probably differ: the standard deviation of their scores."""
        return USUAL * float(FACTORS[int(np.argmax(self.launches))])

    def _variance(self, o: Observation) -> float:
        """What the steps of a run leave open."""
        if o.imported is not None:
            return _IMPORTED**2
        if o.noise is not None:
            return mean_deviation(o.noise, self.noise) ** 2
        return STEPS_UNTOLD**2 if o.half_width is None else (o.half_width / 2) ** 2


def _with_steadiness(shown: list[Shown]) -> list[Shown]:
    """The same, with those marked whose launches on the same nodes agree, if those of any do not."""
    are_odd = any(each.contradicts_itself for each in shown)
    return [replace(each, is_steady=are_odd and each.agrees_with_itself) for each in shown]


def _value(o: Observation) -> float | None:
    """The metric of a run, also of one that was stopped; None if it says nothing of speed."""
    value = o.value if o.value is not None else o.value_so_far
    return value if value is not None and value > 0 else None


def launches_by(evidence: Sequence[float]) -> Array:
    """The probability of each of `FACTORS`, by the logarithm of how well each explains the runs."""
    logs = np.log(_BELIEF) + evidence
    weights = np.exp(logs - logs.max())
    probabilities: Array = weights / weights.sum()
    return probabilities


def _is_placed(o: Observation) -> bool:
    return o.candidate is not None or o.facts is not None


def _ran_here(o: Observation) -> bool:
    """Whether it is of this study: of what is the user's own configuration, it then has a copy of that one's figure."""
    return o.imported is None and o.taken_over is None


def _candidate(seen: Sequence[Observation], facts: ModelFacts | None) -> Candidate:
    """What runs of one name ran; the user's own has no point of the space, but what its engine said."""
    given = next((o.candidate for o in seen if o.candidate is not None), None)
    told = next((o.facts for o in seen if o.facts is not None), facts)
    return given or (told.candidate() if told is not None else _NOWHERE)
