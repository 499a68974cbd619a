"""The settings of a run, the user's own or a candidate's, as one nested mapping; and where two of them differ."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dsopt.search.history import BASELINE, History
from dsopt.study.ds_config import TRAIN_BATCH, baseline_config, candidate_config, get_path, set_path
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, NUM_GPUS, NUM_NODES, OFFLOADS, ZERO, Candidate, is_resource
from dsopt.study.spec import StudySpec

STAGE: Final = f"{ZERO}stage"


def setup_of(spec: StudySpec, candidate: Candidate) -> dict[str, Any]:
    """Everything that a candidate decides: DeepSpeed's configuration, resources and script flags."""
    beside = {key: value for key, value in candidate.knobs if is_resource(key)} | candidate.script_flags
    return candidate_config(spec.ds_config, candidate) | beside


def own_setup(spec: StudySpec, history: History, best: Candidate) -> dict[str, Any]:
    """The same for the user's own, with what its engine reported for keys that the file leaves open."""
    setup = baseline_config(spec.ds_config)
    setup.pop(TRAIN_BATCH, None)
    baseline = history.find(BASELINE)
    facts = baseline.facts if baseline else None
    if facts is not None:
        reported = {STAGE: facts.zero_stage, MICRO_BATCH: facts.micro_batch, ACCUMULATION: facts.gas}
        unsaid: tuple[object, ...] = (None, "auto")
    else:  # DeepSpeed's own defaults are known without a run
        reported = {STAGE: 0} | ({} if TRAIN_BATCH in spec.ds_config else {ACCUMULATION: 1})
        unsaid = (None,)
    for path, value in reported.items():
        if get_path(setup, path) in unsaid:
            set_path(setup, path, value)
    command = spec.resources
    ranks = facts.world_size // command.nodes if facts else command.ranks
    resources = {NUM_GPUS: ranks, NUM_NODES: command.nodes}
    setup |= {key: resources[key] for key, _ in best.knobs if is_resource(key)}
    return setup | {flag: command.script_switch(flag) for flag in best.script_flags}


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, tuple[object, object]]]:
    """The paths at which two nested mappings differ, with both values; an offload section counts as a whole."""
    for key in dict.fromkeys([*old, *new]):
        values = old.get(key), new.get(key)
        sections = [value for value in values if isinstance(value, Mapping)]
        if len(sections) == 2 or (sections and None in values and key not in OFFLOADS):
            yield from differences(values[0] or {}, values[1] or {}, f"{prefix}{key}.")
        elif values[0] != values[1]:
            yield prefix + key, values


def follows_stage(key: str, old: object, new: object) -> bool:
    """Whether a key is only in configurations of ZeRO 3 (`candidate_config`)."""
    return key.startswith(f"{ZERO}stage3_") and (old, new) in (("auto", None), (None, "auto"))
