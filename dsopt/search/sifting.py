"""Which trials of a study can be its own: anything else neither runs nor counts.

Whoever can write to dsopt's tables can put anything there. So a trial counts only if its parameters are those of the
candidate that it was claimed for, and lie in the study's space.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from optuna.trial import FrozenTrial, TrialState

from dsopt.protocol.event_reader import LARGEST_NUMBER, missing_size
from dsopt.protocol.events import Engine
from dsopt.search.history import BASELINE, LeftOut, Observation
from dsopt.search.observing import observe
from dsopt.study.inside import candidate_inside, is_hidden_size
from dsopt.study.part import Part
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from dsopt.study.trial_attributes import TrialAttributes, attributes_of

PROFILE: Final = "profile"
_OWN: Final = "that the study cannot have made"
_LEAST: Final = 1e-30  # of a metric
_NUMBERS: Final = frozenset((int, float))
_BELOW_ZERO: Final = ("step_correlation", "growth_percent")  # what may be


def references_of(spec: StudySpec) -> frozenset[str]:
    """The names of a study's reference runs, finalists of the confirmation not among them."""
    return frozenset((BASELINE, PROFILE, *(run.name for run in spec.compare)))


def sift(spec: StudySpec, part: Part, trial: FrozenTrial, name: str, round_: int) -> Observation | LeftOut:
    """What a claimed trial shows, or why it does not count.

    Args:
        spec: the study's.
        part: the trial's part.
        trial: the trial.
        name: the candidate that it was claimed for.
        round_: the round.
    """
    why = _fault_of(spec, part, trial, name, round_)
    if why is None:
        seen = _observed(trial, part)
        if seen is not None and (part.stage is not None or seen.candidate is None or _is_own(spec, seen.candidate)):
            return seen
        why = f"attributes {_OWN}" if seen is None else f"a profile {_OWN}"
    return LeftOut(part=part, trial=trial.number, why=why)


def not_a_reference(
    observation: Observation, references: frozenset[str], stages: Iterable[Sequence[Observation]]
) -> str | None:
    """Why a reference run does not count: it has a name that is neither a reference's nor that of what has run."""
    if observation.name in references:
        return None
    if observation.round > 0 and any(o.name == observation.name and o.has_figure for s in stages for o in s):
        return None
    return f"the name '{observation.name}', {_OWN}"


def _fault_of(spec: StudySpec, part: Part, trial: FrozenTrial, name: str, round_: int) -> str | None:
    """What a trial's record has that shows that the study did not write it, in words."""
    attrs = attributes_of(trial)
    strange = _strange_attribute(trial.user_attrs)
    if strange is not None:
        return f"an attribute '{strange}' {_OWN}"
    if part.stage is None:
        if trial.params:
            return f"parameters {_OWN}"
        if (attrs.get("candidate"), attrs.get("round", 0)) != (name, round_):
            return f"another name than the study gave it ('{name}')"
    else:
        candidate = candidate_inside(spec, part.stage, trial.params)
        if candidate is None:
            return f"parameters {_OWN}"
        if {candidate.name, attrs.get("candidate", name)} != {name} or attrs.get("round", 0) != round_:
            return f"other parameters than the study gave it ('{name}')"
    is_complete = trial.state == TrialState.COMPLETE
    if is_complete and (
        trial.values is None or len(trial.values) != 1 or not _LEAST <= trial.values[0] <= LARGEST_NUMBER
    ):
        return f"a value {_OWN}"
    return None


def _observed(trial: FrozenTrial, part: Part) -> Observation | None:
    """What the search would read of a trial; None if it could not."""
    try:
        return observe(trial, part)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_own(spec: StudySpec, profile: Candidate) -> bool:
    return candidate_inside(spec, profile.stage, profile.params) is not None


@cache
def _kinds() -> Mapping[str, tuple[frozenset[type], frozenset[object], float]]:
    """Of each attribute that dsopt reads, the types that it may have, for one with few values these, and the least."""
    hints = get_type_hints(Engine)
    engine = {field.name: hints[field.name] for field in fields(Engine)}
    hints = {**engine, **get_type_hints(TrialAttributes)}
    return {key: (*_allowed(hint), -LARGEST_NUMBER if key in _BELOW_ZERO else 0) for key, hint in hints.items()}


def _allowed(hint: Any) -> tuple[frozenset[type], frozenset[object]]:  # noqa: ANN401 - a type as an annotation gives it
    if get_origin(hint) in (Union, UnionType):
        each = [_allowed(one) for one in get_args(hint)]
        return frozenset().union(*(types for types, _ in each)), frozenset().union(*(values for _, values in each))
    if get_origin(hint) is Literal:
        return frozenset(), frozenset(get_args(hint))
    # programs that speak the run protocol may write either kind of number
    return _NUMBERS if hint in _NUMBERS else frozenset((hint,)), frozenset()


def _strange_attribute(attributes: Mapping[str, Any]) -> str | None:
    """The first attribute whose value dsopt cannot have written; a study has dozens of attributes for each trial."""
    kinds = _kinds()
    for key, value in attributes.items():
        if key not in kinds:
            continue
        types, values, least = kinds[key]
        if type(value) in types:
            if type(value) in _NUMBERS and not least <= value <= LARGEST_NUMBER:
                return key
        elif not isinstance(value, str) or value not in values:
            return key
    size = attributes.get("hidden_size")
    if size is not None and not is_hidden_size(size):
        return "hidden_size"
    return missing_size(attributes)
