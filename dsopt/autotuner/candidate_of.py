"""Finds the candidate that matches a run of another tuner: the inverse of `candidate_config`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dsopt.study.command import CONFIG_FLAGS, LaunchCommand
from dsopt.study.ds_config import TRAIN_BATCH, candidate_config, get_path
from dsopt.study.ds_defaults import zero_defaults
from dsopt.study.mapped_flags import agrees, is_explicit
from dsopt.study.own_sizes import smallest_micro_batch
from dsopt.study.space import (
    ACCUMULATION,
    MICRO_BATCH,
    NUM_GPUS,
    NUM_NODES,
    OFFLOADS,
    ZERO,
    Candidate,
    Knob,
    StageSpace,
    is_script_flag,
)
from dsopt.study.spec import StudySpec
from dsopt.study.zero_stages import makes_difference

# not settings of a training: keys that tuners add, and what follows from the other batch sizes
_NO_SETTINGS: Final = ("autotuning", "arg_mappings", "model_info", TRAIN_BATCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """A run that dsopt did not launch.

    Attributes:
        ds_config: the DeepSpeed configuration that it ran with.
        command: the command that launched it.
        num_gpus, num_nodes: ranks on each node, and nodes.
    """

    ds_config: Mapping[str, Any]
    command: LaunchCommand
    num_gpus: int
    num_nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotInSpace:
    """The run is not in the study's space; `why` says what differs, for people."""

    why: str


def stage_of(run: ForeignRun) -> object:
    """The ZeRO stage of a run; 0 if its configuration does not say."""
    zero = run.ds_config.get("zero_optimization") or {}
    return zero.get("stage", 0) if isinstance(zero, Mapping) else zero


def candidate_of(
    spec: StudySpec, space: StageSpace, run: ForeignRun, *, gases: Sequence[int], ranks: int | None
) -> Candidate | NotInSpace:
    """The candidate that matches a run of the space's stage.

    Args:
        spec: the study.
        space: the space of the run's stage.
        run: what was run.
        gases: the accumulations that the study tries.
        ranks: ranks on each node of the study's own runs, if known.
    """
    for key in (MICRO_BATCH, ACCUMULATION):
        value = run.ds_config.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            return NotInSpace(why=f"{key} {_is(value)}; expected a whole number of at least 1")
    knobs: list[tuple[str, Knob]] = []
    for key, choices in space.knobs.items():
        value = _value(run, space.stage, key, choices)
        chosen = [choice for choice in choices if _same(choice, value)]
        if not chosen:
            listed = ", ".join(_shown(choice) for choice in choices)
            return NotInSpace(why=f"{key} {_is(value)}; the study tries {listed}")
        knobs.append((key, chosen[0]))
    candidate = Candidate(
        stage=space.stage,
        micro_batch=run.ds_config[MICRO_BATCH],
        gas=run.ds_config[ACCUMULATION],
        knobs=tuple(knobs),
    )
    differences = (
        *_other_sizes(spec, candidate, run, gases),
        *_other_resources(spec, space, run, ranks),
        *_other_command(spec, run),
        *_other_settings(spec, candidate, run),
    )
    return NotInSpace(why=differences[0]) if differences else candidate


def _value(run: ForeignRun, stage: int, key: str, choices: Sequence[Knob]) -> object:
    """A run's value of a knob; None if it has none."""
    if key == NUM_GPUS:
        return run.num_gpus
    if key == NUM_NODES:
        return run.num_nodes
    if is_script_flag(key):
        return run.command.script_switch(key)
    value = get_path(run.ds_config, key)
    for section in OFFLOADS:
        if key.startswith(f"{ZERO}{section}.") and _is_idle(run, section):
            if not key.endswith(".device"):
                return choices[0]  # no effect: the space has such a combination only once
            return "none" if "none" in choices else None
    return _default(stage, key) if value is None and None not in choices else value


def _default(stage: int, path: str) -> bool | int | None:
    """DeepSpeed's default for a path, if dsopt knows it."""
    return zero_defaults(stage).get(path.removeprefix(ZERO)) if path.startswith(ZERO) else None


def _is_idle(run: ForeignRun, section: str) -> bool:
    """Whether a run offloads nothing with this section."""
    return get_path(run.ds_config, f"{ZERO}{section}.device") in (None, "none")


def _other_sizes(spec: StudySpec, candidate: Candidate, run: ForeignRun, gases: Sequence[int]) -> Iterator[str]:
    tuning, size = spec.autotuning, candidate.micro_batch
    if candidate.gas not in gases:
        listed = ", ".join(str(gas) for gas in gases)
        yield f"{ACCUMULATION} is {candidate.gas}; the study tries {listed}"
    if spec.micro_batch_list is not None and size not in spec.micro_batch_list:
        listed = ", ".join(str(known) for known in spec.micro_batch_list)
        yield f"{MICRO_BATCH} is {size}; the study tries {listed}"
    smallest = tuning.min_train_micro_batch_size_per_gpu if spec.micro_batch_list else smallest_micro_batch(spec)
    if size < smallest:
        yield f"{MICRO_BATCH} is {size}; the study tries {smallest} and more"
    largest = tuning.max_train_micro_batch_size_per_gpu
    if largest is not None and size > largest:
        yield f"{MICRO_BATCH} is {size}; the study tries at most {largest}"
    batch = size * candidate.gas * max(1, run.num_gpus * run.num_nodes // tuning.mp_size)
    most, least = tuning.max_train_batch_size, tuning.min_train_batch_size
    if (most is not None and batch > most) or batch < least:
        bounds = f"{least} to {most}" if most is not None else f"{least} and more"
        yield f"{TRAIN_BATCH} is {batch}; the study tries {bounds}"


def _other_resources(spec: StudySpec, space: StageSpace, run: ForeignRun, ranks: int | None) -> Iterator[str]:
    nodes = spec.resources.nodes
    if NUM_NODES not in space.knobs and run.num_nodes != nodes:
        yield f"it ran on {run.num_nodes} nodes; the study's command uses {nodes}"
    if NUM_GPUS in space.knobs:
        return
    if ranks is None:
        yield (
            "the study's command does not say how many GPUs it uses; import again after the baseline has run, which "
            "shows it"
        )
    elif run.num_gpus != ranks:
        yield f"it ran on {run.num_gpus} GPUs per node; the study's command uses {ranks}"


def _other_command(spec: StudySpec, run: ForeignRun) -> Iterator[str]:
    """How the script and its arguments differ from the user's, apart from the configuration and what is tuned."""
    own, other = spec.launch, run.command
    if Path(own.script).name != Path(other.script).name:
        yield f"it ran {other.script}; the study's command runs {own.script}"
    for key, flag in spec.autotuning.arg_mappings.items():
        given, value = other.script_switch(flag), get_path(run.ds_config, key)
        if given is not None and is_explicit(value) and not agrees(given, value):
            typed = f"{flag} {given}".strip()
            yield f"it was launched with {typed}, but its configuration has {key} {_shown(value)}"
    for flag in (*CONFIG_FLAGS, *spec.autotuning.arg_mappings.values(), *spec.search.args):
        own, other = own.with_script_switch(flag, None), other.with_script_switch(flag, None)
    # the autotuner writes the words of its command without quotes
    ours, theirs = " ".join(own.script_args).split(), list(other.script_args)
    if ours != theirs:
        yield f"its script had the arguments '{' '.join(theirs)}'; the study's command has '{' '.join(ours)}'"


def _other_settings(spec: StudySpec, candidate: Candidate, run: ForeignRun) -> Iterator[str]:
    """The settings that differ from those that the candidate would run with."""
    ran = {key: value for key, value in run.ds_config.items() if key not in _NO_SETTINGS}
    idle = tuple(f"{ZERO}{section}." for section in OFFLOADS if _is_idle(run, section))
    theirs = {path: value for path, value in _leaves(ran) if not path.startswith(idle)}
    theirs[f"{ZERO}stage"] = candidate.stage
    ours = dict(_leaves(candidate_config(spec.ds_config, candidate)))
    for path in sorted(ours.keys() | theirs.keys()):
        name = path.removeprefix(ZERO)
        if path != name and "." not in name and not makes_difference(name, theirs.get(path), candidate.stage):
            continue
        own, other = (leaves.get(path, _default(candidate.stage, path)) for leaves in (ours, theirs))
        if not _same(own, other):
            yield f"{path} {_is(other)}; in the study it {_is(own)}"


def _leaves(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _same(one: object, other: object) -> bool:
    """Equality of JSON: 5e8 is 500000000, and 1 is not true."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _is(value: object) -> str:
    return "is not set" if value is None else f"is {_shown(value)}"


def _shown(value: object) -> str:
    text = "not set" if value is None else json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
