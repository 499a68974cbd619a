"""Sets the script's flags that repeat keys of DeepSpeed's configuration (`arg_mappings`) to a run's values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dsopt.study.command import LaunchCommand
from dsopt.study.ds_config import TRAIN_BATCH, baseline_config, candidate_config, get_path
from dsopt.study.script_flags import is_on, same_flag
from dsopt.study.script_parser import typed_in
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, NUM_GPUS, NUM_NODES, ZERO, Candidate, Knob
from dsopt.study.spec import StudySpec
from dsopt.study.trainer import DEFAULTS

# what decides how many samples a step has
_SIZES: Final = (MICRO_BATCH, ACCUMULATION, TRAIN_BATCH)
# what every candidate's configuration says
_ALWAYS_SAID: Final = (*_SIZES, f"{ZERO}stage")


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
        if self.typed is not None:
            said = f"{self.flag} {self.typed}".strip()
        else:
            default = "a default that dsopt does not know" if self.default is None else f"the default {self.default}"
            said = f"{self.flag}, absent in the command, with {default},"
        contradicts = "may contradict" if self.typed is None and self.default is None else "contradicts"
        return (
            f"{said} {contradicts} {self.path} {_text(self.value)} in {config}; dsopt uses the configuration's value, "
            "as DeepSpeed's documents say"
        )

    def result_text(self) -> str | None:
        """What it means for a result; None: nothing, as it is no size of a batch."""
        if self.path not in _SIZES:
            return None
        other = "the command lacks it" if self.typed is None else f"the command has {self.flag} {self.typed}"
        return (
            f"your own run is one with {self.flag} {_text(self.value)}, as your configuration says; {other}. If you "
            "train with another value, the factor is not that of your training: put the value into the configuration, "
            "and tune in a new study (another --name)."
        )


def contradictions(spec: StudySpec) -> Iterator[Contradiction]:
    """The mapped flags of the command that contradict the user's own configuration, or may.

    An absent flag counts with its default, if that is known: that of a switch, the Trainer's, or what the script's
    source says.
    """
    config = baseline_config(spec.ds_config)
    for path, flag in spec.autotuning.arg_mappings.items():
        value, given = get_path(config, path), typed_in(spec, flag)
        if not is_explicit(value) or (given.perhaps is not None and agrees(given.perhaps, value)):
            continue
        default: object = None
        if given.value is not None:
            differs = not agrees(given.value, value)
        elif isinstance(value, bool):  # a switch that is on by default cannot be set off by leaving it out
            default, differs = False, bool(value) and given.default is not True
        else:
            default = next((number for name, number in DEFAULTS.items() if same_flag(flag, name)), given.default)
            is_known = default is not None or given.is_known
            differs = not is_known or (default is not None and not agrees(str(default), value))
        if differs:
            yield Contradiction(flag=flag, typed=given.value, default=default, path=path, value=value)


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
        values[TRAIN_BATCH] = whole_batch(spec, candidate)
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


def is_ever_set(spec: StudySpec, path: str) -> bool:
    """Whether some run of a study gets the flag that this key is mapped to."""
    if is_explicit(get_path(baseline_config(spec.ds_config), path)) or path in (*_ALWAYS_SAID, *spec.search.ds_config):
        return True
    return any(path in spec.space(stage, hidden_size=1024).knobs for stage in spec.stages)


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


def whole_batch(spec: StudySpec, candidate: Candidate) -> int | None:
    """A candidate's `train_batch_size`, as DeepSpeed counts it; None where the command does not say the ranks."""
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
