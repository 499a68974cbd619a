"""Sets the script's flags that repeat keys of DeepSpeed's configuration (`arg_mappings`) to a run's values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dsopt.study.command import LaunchCommand
from dsopt.study.ds_config import TRAIN_BATCH, baseline_config, candidate_config, get_path
from dsopt.study.script_flags import is_on, same_flag
from dsopt.study.script_parser import default_in_script
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, NUM_GPUS, NUM_NODES, Candidate, Knob
from dsopt.study.spec import StudySpec
from dsopt.study.trainer import DEFAULTS

# what decides how many samples a step has
_SIZES: Final = (MICRO_BATCH, ACCUMULATION, TRAIN_BATCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """A mapped flag that contradicts the user's own configuration, or may. dsopt uses the configuration's value.

    Attributes:
        flag, typed: the flag, and its value in the command as a switch (`script_switch`); None: it is absent.
        default: what the script has where the flag is absent; None: nobody knows.
        path, value: the key it is mapped to, and the configuration's value.
    """

    flag: str
    typed: str | None
    default: object
    path: str
    value: Knob

    def text(self, config: str) -> str:
        """What dsopt does about it. `config` names the configuration."""
        contradicts = f"{self._said()} contradicts" if self._is_sure() else f"{self._said()} may contradict"
        return (
            f"{contradicts} {self.path} {_text(self.value)} in {config}; dsopt uses the configuration's value, as "
            "DeepSpeed's documents say"
        )

    def result_text(self) -> str | None:
        """What it means for a result; None: nothing, as it is no size of a batch."""
        if self.path not in _SIZES:
            return None
        if self.typed is not None:
            instead = f", not {self.flag} {self.typed} as typed"
        elif self.default is not None:
            instead = f"; the command lacks the flag, and the script's default is {self.default}"
        else:
            instead = "; the command lacks the flag, and dsopt does not know the script's default"
        return (
            f"your own run had {self.flag} {_text(self.value)}, as the configuration says{instead}. If you train with "
            "another value, the factor is not that of your training: put the value into the configuration, and tune in "
            "a new study (another --name)."
        )

    def _is_sure(self) -> bool:
        return self.typed is not None or self.default is not None

    def _said(self) -> str:
        if self.typed is not None:
            return f"{self.flag} {self.typed}".strip()
        default = "a default that dsopt does not know" if self.default is None else f"the default {self.default}"
        return f"{self.flag}, absent in the command, with {default},"


def contradictions(spec: StudySpec) -> Iterator[Contradiction]:
    """The mapped flags of the command that contradict the user's own configuration, or may.

    An absent flag counts with its default, if that is known: that of a switch, the Trainer's, or what the script's
    source says.
    """
    config = baseline_config(spec.ds_config)
    for path, flag in spec.autotuning.arg_mappings.items():
        value = get_path(config, path)
        if not is_explicit(value):
            continue
        typed, default = spec.launch.script_switch(flag), None
        if typed is None:
            default = False if isinstance(value, bool) else _default(spec, flag)
        if default != value if typed is None else not agrees(typed, value):
            yield Contradiction(flag=flag, typed=typed, default=default, path=path, value=value)


def with_own_flags(spec: StudySpec, command: LaunchCommand) -> LaunchCommand:
    """The command of the user's own run, whose mapped flags say what the configuration says.

    A flag that is absent is given, too: a candidate gets it, and a script with another default would feed the two other
    batches.
    """
    return with_flags_of(command, spec.autotuning.arg_mappings, baseline_config(spec.ds_config))


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


def _default(spec: StudySpec, flag: str) -> object:
    trainers = next((value for name, value in DEFAULTS.items() if same_flag(flag, name)), None)
    return default_in_script(spec, flag) if trainers is None else trainers


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
