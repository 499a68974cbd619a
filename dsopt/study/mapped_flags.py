"""Sets the script's flags that repeat keys of DeepSpeed's configuration (`arg_mappings`) to a run's values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dsopt.study.command import LaunchCommand
from dsopt.study.ds_config import TRAIN_BATCH, baseline_config, candidate_config, get_path
from dsopt.study.script_flags import is_on, same_flag
from dsopt.study.space import NUM_GPUS, NUM_NODES, Candidate, Knob
from dsopt.study.spec import StudySpec
from dsopt.study.trainer import DEFAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """A mapped flag that contradicts the user's own configuration. dsopt uses the configuration's value.

    Attributes:
        flag, typed: the flag, and its value in the command as a switch (`script_switch`); None: it is absent.
        path, value: the key it is mapped to, and the configuration's value.
    """

    flag: str
    typed: str | None
    path: str
    value: Knob

    def text(self, config: str) -> str:
        """What dsopt does about it. `config` names the configuration."""
        said = f"{self.flag} {self.typed}".strip() if self.typed is not None else f"{self.flag}, absent in the command,"
        return (
            f"{said} contradicts {self.path} {_text(self.value)} in {config}; dsopt uses the configuration's value, as "
            "DeepSpeed's documents say"
        )


def contradictions(spec: StudySpec) -> Iterator[Contradiction]:
    """The mapped flags of the command that contradict the user's own configuration.

    An absent flag counts with its default, if that is known: the Trainer's, or that of a switch.
    """
    config = baseline_config(spec.ds_config)
    for path, flag in spec.autotuning.arg_mappings.items():
        value = get_path(config, path)
        if not is_explicit(value):
            continue
        typed = spec.launch.script_switch(flag)
        if typed is None and not isinstance(value, bool):
            default = next((given for name, given in DEFAULTS.items() if same_flag(flag, name)), None)
            if default is None or default == value:
                continue
        if not agrees(typed, value):
            yield Contradiction(flag=flag, typed=typed, path=path, value=value)


def with_own_flags(spec: StudySpec, command: LaunchCommand) -> LaunchCommand:
    """The command of the user's own run: as typed, except for mapped flags that contradict the configuration."""
    for found in contradictions(spec):
        command = _with_flag(command, found.flag, found.value)
    return command


def with_candidates_flags(spec: StudySpec, command: LaunchCommand, candidate: Candidate) -> LaunchCommand:
    """The command with the mapped flags set to the candidate's values; flags without one stay as typed."""
    config: Mapping[str, Any] = candidate_config(spec.ds_config, candidate)
    values = {path: get_path(config, path) for path in spec.autotuning.arg_mappings}
    values |= {path: value for path, value in candidate.config_values.items() if path in values}
    if TRAIN_BATCH in values:
        values[TRAIN_BATCH] = _train_batch(spec, candidate)
    for path, flag in spec.autotuning.arg_mappings.items():
        if is_explicit(values[path]):
            command = _with_flag(command, flag, values[path])
        elif path in candidate.config_values:
            command = command.with_script_switch(flag, None)
    return command


def with_flags_of(command: LaunchCommand, mappings: Mapping[str, str], config: Mapping[str, Any]) -> LaunchCommand:
    """A command with the mapped flags set to a configuration's values; flags without one stay as typed."""
    for path, flag in mappings.items():
        value = get_path(config, path)
        if is_explicit(value):
            command = _with_flag(command, flag, value)
    return command


def is_explicit(value: object) -> bool:
    """Whether a configuration sets a value itself, rather than leave it to the script ("auto") or to DeepSpeed."""
    return value not in (None, "auto")


def agrees(typed: str | None, value: object) -> bool:
    """Whether the value of a flag (`script_switch`) is this value of the configuration."""
    if isinstance(value, bool):
        return is_on(typed) == value
    if isinstance(value, int | float):
        try:
            return typed is not None and float(typed) == value
        except ValueError:
            return False
    return typed == value


def _train_batch(spec: StudySpec, candidate: Candidate) -> int | None:
    ranks = candidate.resource(NUM_GPUS) or spec.resources.ranks
    nodes = candidate.resource(NUM_NODES) or spec.resources.nodes
    replicas = max(1, ranks * nodes // spec.autotuning.mp_size) if ranks else None
    return candidate.micro_batch * candidate.gas * replicas if replicas else None


def _with_flag(command: LaunchCommand, flag: str, value: Knob) -> LaunchCommand:
    """The command with the flag set to a value; a switch, which has no value, is added or removed."""
    typed = command.script_switch(flag)
    if typed is not None and agrees(typed, value):
        return command
    if isinstance(value, bool) and not typed:
        return command.with_script_switch(flag, "" if value else None)
    text = _text(value)
    return command.with_script_value(
        flag, text.title() if isinstance(value, bool) and typed in ("True", "False") else text
    )


def _text(value: Knob) -> str:
    """A value as people type it: true, 500000000, 3e-05."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
