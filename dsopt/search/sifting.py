"""Which trials of a study can be its own: what else is in Optuna's tables neither runs nor counts.

Whoever can write to the database, or add trials in a dashboard, can put anything there. So a trial counts only if
dsopt's own tables say which candidate it is, its parameters are that candidate's, and they lie in the study's space.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from optuna.trial import FrozenTrial, TrialState

from dsopt.protocol.events import Engine
from dsopt.search.history import BASELINE, LeftOut, Observation, observe
from dsopt.study.inside import candidate_inside, is_hidden_size
from dsopt.study.part import REFERENCE, Part
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from dsopt.study.trial_attributes import TrialAttributes, attributes_of

PROFILE: Final = "profile"
_OWN: Final = "that the study cannot have made"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What dsopt's tables say of a trial: its candidate's name, and the round."""

    name: str
    round: int


class Sieve:
    """Tells a study's own trials from others; looks at each finished trial once."""

    def __init__(self, spec: StudySpec) -> None:
        self._spec = spec
        self._references = {BASELINE, PROFILE, *(run.name for run in spec.compare)}
        self._known: dict[tuple[Part, int], tuple[FrozenTrial, Claimed, str | None]] = {}

    def own(
        self,
        part: Part,
        trials: Sequence[FrozenTrial],
        claims: Mapping[int, Claimed],
        candidates: Collection[str] = (),
    ) -> tuple[list[FrozenTrial], list[LeftOut]]:
        """The trials of a part that count, and those that are claimed but cannot be the study's own.

        Args:
            part: the part.
            trials: all trials of its Optuna study.
            claims: by the number of the trial.
            candidates: for the reference part, names of the candidates that a confirmation may measure.
        """
        own, left = [], []
        for trial in trials:
            claim = claims.get(trial.number)
            if claim is None:
                continue
            why = self._fault(part, trial, claim)
            if why is None and part == REFERENCE and not self._may_run(claim, candidates):
                why = f"the name '{claim.name}', {_OWN}"
            if why is None:
                own.append(trial)
            else:
                left.append(LeftOut(part=part, trial=trial.number, why=why))
        return own, left

    def _may_run(self, claim: Claimed, candidates: Collection[str]) -> bool:
        return claim.name in self._references or (claim.round > 0 and claim.name in candidates)

    def _fault(self, part: Part, trial: FrozenTrial, claim: Claimed) -> str | None:
        key, known = (part, trial.number), self._known.get((part, trial.number))
        if known is not None and known[0] is trial and known[1] == claim:
            return known[2]
        why = fault_of(self._spec, part, trial, claim)
        if trial.state.is_finished():
            self._known[key] = (trial, claim, why)
        return why


def fault_of(spec: StudySpec, part: Part, trial: FrozenTrial, claim: Claimed) -> str | None:
    """What a trial has that shows that the study did not make it, in words; None: it may be the study's own."""
    attrs = attributes_of(trial)
    wrong = next((key for key, value in trial.user_attrs.items() if not _is_of_its_kind(key, value)), None)
    if wrong is not None:
        return f"an attribute '{wrong}' {_OWN}"
    if part.stage is None:
        if trial.params:
            return f"parameters {_OWN}"
        if (attrs.get("candidate"), attrs.get("round", 0)) != (claim.name, claim.round):
            return f"another name than the study gave it ('{claim.name}')"
    else:
        candidate = candidate_inside(spec, part.stage, trial.params)
        if candidate is None:
            return f"parameters {_OWN}"
        if (candidate.name, attrs.get("round", 0)) != (claim.name, claim.round):
            return f"other parameters than the study gave it ('{claim.name}')"
    seen = _observed(trial, part)
    if seen is None:
        return f"attributes {_OWN}"
    if part.stage is None and seen.candidate is not None and not _is_own_profile(spec, seen.candidate):
        return f"a profile {_OWN}"
    is_complete = trial.state == TrialState.COMPLETE
    if is_complete and (trial.values is None or len(trial.values) != 1 or not math.isfinite(trial.values[0])):
        return f"a value {_OWN}"
    return None


def _observed(trial: FrozenTrial, part: Part) -> Observation | None:
    """What the search would read of a trial; None if it could not."""
    try:
        return observe([trial], {trial.number}, part)[0]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_own_profile(spec: StudySpec, profile: Candidate) -> bool:
    return candidate_inside(spec, profile.stage, profile.params) is not None


@cache
def _kinds() -> Mapping[str, Any]:
    """The kind of each attribute that dsopt reads."""
    engine = {field.name: hint for field in dataclasses.fields(Engine) if (hint := _hints(Engine).get(field.name))}
    return {**engine, **_hints(TrialAttributes)}


def _hints(of: type) -> Mapping[str, Any]:
    return get_type_hints(of)


def _is_of_its_kind(key: str, value: object) -> bool:
    if key == "hidden_size":
        return value is None or is_hidden_size(value)
    hint = _kinds().get(key)
    return hint is None or _fits(value, hint)


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401 - a type as an annotation gives it
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint in (int, float):  # programs that speak the run protocol may write either
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is hint
