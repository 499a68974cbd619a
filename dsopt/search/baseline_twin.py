"""Whether a candidate is the user's own configuration under another name, which needs no run of its own."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from dsopt.search.facts import ModelFacts
from dsopt.search.history import History
from dsopt.study.ds_config import candidate_config, get_path
from dsopt.study.space import NUM_GPUS, NUM_NODES, OFFLOADS, ZERO, Candidate, Knob, is_resource, is_script_flag
from dsopt.study.spec import StudySpec


def is_baseline(spec: StudySpec, history: History, candidate: Candidate | None) -> bool:
    """Whether a candidate is the user's own configuration under another name."""
    return baseline_test(spec, history)(candidate)


def baseline_test(spec: StudySpec, history: History) -> Callable[[Candidate | None], bool]:
    """The same as a test of many candidates: what it needs of the user's own configuration is made once."""
    baseline = history.find("baseline")
    facts = baseline.facts if baseline else None
    if facts is None:
        return lambda _: False
    own, has_own = facts.candidate(), own_value_test(spec, facts)

    own_config = _own_config_of(spec, own)

    def is_own(candidate: Candidate | None) -> bool:
        if candidate is None or candidate.micro_batch != own.micro_batch:
            return False
        if (own.stage, own.gas) != (candidate.stage, candidate.gas):
            return False
        if not all(_is_dropped(key) or has_own(key, value) for key, value in candidate.knobs):
            return False
        return candidate_config(spec.ds_config, candidate) == own_config()

    return is_own


def own_value_test(spec: StudySpec, facts: ModelFacts) -> Callable[[str, Knob], bool]:
    """Tests whether the user's own configuration, of which the facts are, has a value of a dimension."""
    nodes = spec.resources.nodes
    own_resources = {NUM_NODES: nodes, NUM_GPUS: facts.world_size // nodes}

    own_config = _own_config_of(spec, facts.candidate())

    def has_own(key: str, value: Knob) -> bool:
        if is_script_flag(key):
            return spec.launch.script_switch(key) == value
        if is_resource(key):
            return not isinstance(value, int) or value == own_resources[key]
        own = get_path(own_config(), key)
        return value == ("none" if own is None and _is_dropped(key) and key.endswith(".device") else own)

    return has_own


def _own_config_of(spec: StudySpec, own: Candidate) -> Callable[[], Mapping[str, Any]]:
    """The user's own configuration, with the first value of each list, as that of a candidate; made when needed."""
    return cache(lambda: candidate_config(spec.own_config, own))


def _is_dropped(key: str) -> bool:
    """Whether a configuration may lack what a candidate sets there: that of an offload that does nothing."""
    return key.startswith(tuple(f"{ZERO}{section}." for section in OFFLOADS))
