"""How many runs a study still needs, as a range: from the plan's own limits, and from how long searches took."""

import math
from dataclasses import dataclass
from typing import Final

from dsopt.search.facts import ModelFacts
from dsopt.search.finalists import finalists
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.how_many import others_of
from dsopt.search.unconfirmed import failed_finalists
from dsopt.study.comparison import rounds_of
from dsopt.study.spec import Confirmation, StudySpec

# Searches of the simulated development scenarios ended within so many runs, nine out of ten: this, plus one for each
# doubling of the settings. `benchmarks/left.py` prints how often what was said then came.
_SEARCHED: Final = 5
_FEWEST_SEARCHED: Final = 2
_TAIL: Final = 3  # runs that a search may still take which is longer than that
_REPEATED: Final = 3  # further runs of what is known that a study may still take without rounds
_LIKELY_ROUNDS: Final = 2  # of the confirmation; few studies need more
_FEWEST_CONFIRMED: Final = 2  # the baseline and a finalist


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsLeft:
    """How many runs are left, those that go on included."""

    fewest: int
    most: int


def runs_left(spec: StudySpec, history: History) -> RunsLeft | None:
    """How many runs a study that goes on still needs; None if nothing true can be said.

    Nothing is said before the first run has ended, nor of a search that takes one stage after the other, or goes on
    while runs pay: its length depends on what comes.
    """
    if spec.compare:
        return _of_comparison(spec, history)
    baseline, facts = history.find(BASELINE), history.facts_for(spec)
    if baseline is None or baseline.state == "running" or facts is None:
        return None
    if (asked := spec.confirmation) is not None:
        rounds = max((o.round for o in history.reference if o.why is None and o.round <= asked.rounds), default=0)
        if rounds:
            return _of_confirmation(spec, history, asked, rounds)
    is_open = any(stage not in history.verdicts for stage in spec.stages)
    if is_open and (not spec.is_joint or spec.stop_when == "payback"):
        return None
    has_own = baseline.state == "measured"
    if spec.confirmation is None:
        if not is_open:
            return RunsLeft(fewest=0, most=_REPEATED if history.measured else 0)
        allowed = _allowed(spec, history, facts)
        return _of_search(spec, history, facts, allowed, RunsLeft(fewest=0, most=_REPEATED if allowed else 0))
    confirmed = _LIKELY_ROUNDS if spec.confirmation.rounds > 1 else 1
    ranked = len(finalists(spec, history, spec.confirmation))
    if not is_open:
        fewest = ranked + has_own if ranked else 0
        return RunsLeft(fewest=fewest, most=fewest * confirmed)
    allowed = _allowed(spec, history, facts)
    chosen = min(spec.confirmation.finalists, ranked + allowed)
    most = confirmed * (chosen + has_own) if chosen else 0
    is_sure = ranked or allowed > _TAIL  # otherwise dsopt may find none of so few worth a run
    fewest = min(most, _FEWEST_CONFIRMED if has_own else 1) if is_sure else 0
    return _of_search(spec, history, facts, allowed, RunsLeft(fewest=fewest, most=most))


def _of_search(spec: StudySpec, history: History, facts: ModelFacts, allowed: int, confirmation: RunsLeft) -> RunsLeft:
    """What is left of a search over all stages, and of the confirmation after it."""
    ended = sum(o.is_spent and o.state != "running" for o in history.observations)
    settings = sum(len(spec.space(stage, facts.hidden_size).settings()) for stage in spec.stages)
    left = max(math.ceil(_SEARCHED + math.log2(max(1, settings))) - ended, _TAIL)
    most = min(left, allowed)
    fewest = max(0, _FEWEST_SEARCHED - ended) if len(spec.stages) > 1 else 0
    return RunsLeft(fewest=min(fewest, most) + confirmation.fewest, most=most + confirmation.most)


def _allowed(spec: StudySpec, history: History, facts: ModelFacts) -> int:
    """How many runs of the search the user still allows: a number a stage, and no more than it has candidates."""
    others = others_of(spec, facts, history)
    allowed = 0
    for stage in spec.stages:
        if stage in history.verdicts:
            continue
        over = [o for o in history.stages[stage] if o.state != "running"]
        most = spec.autotuning.tuner_num_trials - sum(o.is_spent for o in over)
        if others is not None:
            is_sure = stage == history.own_stage and len(spec.space(stage, facts.hidden_size).groups()) == 1
            most = min(most, (others[stage].usual if is_sure else others[stage].all) - len(over))
        allowed += max(0, most)
    return allowed


def _of_confirmation(spec: StudySpec, history: History, asked: Confirmation, rounds: int) -> RunsLeft:
    """What is left of the confirmation: of this round, and of those that may follow."""
    first = {o.name for o in history.reference if o.round == 1}
    expected = {o.name for o in finalists(spec, history, asked)} | first - set(failed_finalists(history))
    baseline = history.find(BASELINE)
    if baseline is not None and baseline.state == "measured":
        expected.add(BASELINE)
    in_round = [o for o in history.reference if o.round == rounds]
    missing = len(expected - {o.name for o in in_round if o.state != "running"})
    fewest = missing if rounds == 1 else sum(o.state == "running" for o in in_round)
    return RunsLeft(fewest=fewest, most=missing + len(expected) * (asked.rounds - rounds))


def _of_comparison(spec: StudySpec, history: History) -> RunsLeft:
    """What is left of a comparison: those that failed are not run again."""
    ended = [o for o in history.reference if o.state != "running"]
    names = [BASELINE, *(run.name for run in spec.compare)]
    left = sum(_rounds_left(spec, [o for o in ended if o.name == name]) for name in names)
    return RunsLeft(fewest=left, most=left)


def _rounds_left(spec: StudySpec, ended: list[Observation]) -> int:
    has_failed = any(o.state != "measured" for o in ended)
    return 0 if has_failed else rounds_of(spec) - len(ended)
