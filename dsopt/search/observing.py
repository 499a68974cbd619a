"""What a trial in Optuna shows: it becomes an `Observation`, the only form in which the search knows it."""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final

from optuna.trial import FrozenTrial, TrialState

from dsopt.protocol.events import Engine
from dsopt.protocol.text import plain_text
from dsopt.search.facts import ModelFacts
from dsopt.search.history import Observation, State
from dsopt.search.run_quality import noise_of, quality_of
from dsopt.study.own_sources import sources_in
from dsopt.study.part import Part
from dsopt.study.space import Candidate
from dsopt.study.trial_attributes import ORDER, TrialAttributes, attributes_of, rates_of_node


def observe(trial: FrozenTrial, part: Part) -> Observation:
    """What a trial of a part shows."""
    attrs, state = attributes_of(trial), _state(trial)
    measured = state == "measured"
    candidate = part.candidate(trial.params)
    return Observation(
        trial=trial.number,
        name=attrs.get("candidate") or (candidate.name if candidate is not None else ""),
        round=attrs.get("round", 0),
        candidate=candidate or _profile(attrs),
        phase=attrs.get("phase", "range"),
        state=state,
        reason=attrs.get("reason"),
        message=plain_text(attrs.get("message", "")),
        value=trial.value if measured else None,
        facts=_facts(trial.user_attrs) if state in ("measured", "slow") and "num_params" in trial.user_attrs else None,
        engine=_engine(trial.user_attrs),
        imported=attrs.get("imported"),
        taken_over=attrs.get("taken_over"),
        run_dir=attrs.get("run_dir", ""),
        value_so_far=attrs.get("value_so_far"),
        value_bound=attrs.get("value_bound"),
        half_width=attrs["interval_percent"] / 100 if "interval_percent" in attrs else None,
        seconds=attrs.get("run_seconds"),
        why=attrs.get("why"),
        wrote_outside=attrs.get("wrote_outside", ""),
        resumes_from=attrs.get("resumes_from", ""),
        saves_in_place=attrs.get("saves_in_place", False),
        is_sound=not attrs.get("unsound", False),
        quality=quality_of(attrs) if measured else None,
        noise=noise_of(attrs),
        steps=attrs.get("measured_steps", 0) + attrs.get("warmup_steps", 0),
        step_seconds=attrs["step_milliseconds"] / 1000 if "step_milliseconds" in attrs else None,
        ran_on=tuple(sorted(filter(None, attrs.get("ran_on", "").split(", ")))),
        node_rates=rates_of_node(attrs),
        sources=sources_in(attrs.get("sources", "")),
        order=trial.system_attrs.get(ORDER, math.inf) if trial.state.is_finished() else math.inf,
    )


_STATES: Mapping[TrialState, State] = {
    TrialState.COMPLETE: "measured",
    TrialState.PRUNED: "infeasible",
    TrialState.FAIL: "failed",
}


def _state(trial: FrozenTrial) -> State:
    if trial.state == TrialState.PRUNED and attributes_of(trial).get("reason") == "slow":
        return "slow"
    return _STATES.get(trial.state, "running")


def _profile(attrs: TrialAttributes) -> Candidate | None:
    """The candidate of a reference run that records it: the least-memory profile does (`profile_attributes`)."""
    if "profile_params" not in attrs:
        return None
    return Candidate.from_params(attrs["profile_stage"], json.loads(attrs["profile_params"]))


def profile_attributes(candidate: Candidate) -> TrialAttributes:
    """The attributes that record which candidate a least-memory profile ran."""
    return {"profile_stage": candidate.stage, "profile_params": json.dumps(candidate.params)}


_ENGINE: Final = tuple(f.name for f in fields(Engine) if f.name != "rank")
_ENGINE_NEEDS: Final = frozenset(f.name for f in fields(Engine) if f.default is MISSING) - {"rank"}
_FACTS: Final = tuple(f.name for f in fields(ModelFacts) if f.name != "sharing")


def _engine(attrs: Mapping[str, Any]) -> Engine | None:
    """What an engine reported; None while a worker is still writing it, one attribute after the other."""
    if not attrs.keys() >= _ENGINE_NEEDS:
        return None
    return Engine(rank=0, **{name: attrs[name] for name in _ENGINE if name in attrs})


def _facts(attrs: Mapping[str, Any]) -> ModelFacts:
    return ModelFacts(**{name: attrs[name] for name in _FACTS if name in attrs}, sharing=_sharing(attrs))


def _sharing(attrs: Mapping[str, Any]) -> int:
    """The ranks beside AutoTP's that share the samples of a replica: in data parallelism alone, each has its own."""
    ranks = attrs["world_size"]
    alone = attrs["micro_batch"] * attrs["gas"] * ranks
    seconds = attrs.get("step_milliseconds", 0.0) / 1000
    samples = round(attrs.get("samples_per_second", 0.0) * seconds) * attrs.get("autotp", 1)
    shared = alone // samples if samples and alone % samples == 0 else 1
    return shared if ranks % shared == 0 else 1
