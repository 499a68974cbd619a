"""A comparison: dsopt measures named configurations of one script in turn, without a search."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from dsopt.errors import DsoptError
from dsopt.study.check_config import check_config
from dsopt.study.command import LaunchCommand
from dsopt.study.compared import ComparedRun
from dsopt.study.ds_config import check_values, get_path, user_zero
from dsopt.study.ds_schema import Schema
from dsopt.study.mapped_flags import with_flags_of, with_own_flags
from dsopt.study.mistakes import Mistakes
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, ZERO, listed_values
from dsopt.study.spec import Confirmation, StudySpec

VANILLA: Final = "vanilla"
OPTIMUM: Final = "dsopt"  # a study's best
# what a comparison keeps of the study that it is made from; the rest of a spec is about a search
_KEPT: Final = (
    *("cwd", "ds_config", "start", "timeout_seconds", "isolate", "pass_env", "memory_per_device", "measurement"),
    *("max_attempts", "simulation"),
)
_KEPT_AUTOTUNING: Final = (
    *("results_dir", "exps_dir", "metric", "start_profile_step", "end_profile_step", "mp_size", "arg_mappings"),
)


def comparison_name(study: str) -> str:
    """What a comparison of a study is called, unless somebody gives it another name."""
    return f"{study}-compare"


def rounds_of(spec: StudySpec) -> int:
    """How often each configuration is launched in rounds."""
    return (spec.confirmation or Confirmation()).rounds


def comparison_spec(spec: StudySpec, name: str, runs: Sequence[ComparedRun], rounds: int | None) -> StudySpec:
    """The study that compares these runs, and the user's own, of another study's command.

    Args:
        spec: that study, or what a command line alone says.
        name: of the comparison.
        runs: in the order of the table.
        rounds: launches of each; None: as many as that study's confirmation has.

    Raises:
        DsoptError: the name is not valid, or two runs have the same name.
    """
    content = spec.model_dump(mode="json", exclude_unset=True)
    tuning = content.get("autotuning", {})
    made: dict[str, Any] = {
        **{key: content[key] for key in _KEPT if key in content},
        "name": name,
        "command": str(spec.resources),
        "autotuning": {key: tuning[key] for key in _KEPT_AUTOTUNING if key in tuning},
        "confirmation": {"rounds": rounds or rounds_of(spec)},
        "compare": [run.model_dump(exclude_unset=True) for run in runs],
    }
    try:
        return StudySpec.model_validate(made)
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise DsoptError(f"comparison '{name}': {message}.") from None


def spec_of_run(spec: StudySpec, name: str) -> StudySpec:
    """The spec whose own command and configuration are those of one run of a comparison.

    For every other run (the user's own configuration, and candidates) it is the study's own spec.
    """
    run = compared_run(spec, name)
    if run is None:
        return spec
    content = spec.model_dump(mode="json", exclude_unset=True)
    return StudySpec.model_validate({**content, "command": run.command, "ds_config": run.ds_config or {}})


def specs_of_runs(spec: StudySpec) -> Iterator[StudySpec]:
    """The specs of everything that a study runs: its own, and those of a comparison's runs."""
    yield spec
    for run in spec.compare:
        yield spec_of_run(spec, run.name)


def compared_run(spec: StudySpec, name: str) -> ComparedRun | None:
    """A run of a comparison by its name; None for any other run."""
    return next((run for run in spec.compare if run.name == name), None)


def plain_sizes(spec: StudySpec, name: str) -> tuple[int, int] | None:
    """Micro-batch size and accumulation of a run without DeepSpeed, from its command; None for a run with DeepSpeed.

    They are the values of mapped flags in its command. Without such a flag, the micro-batch size is 0 (unknown), and
    the accumulation is the user's own, else 1.
    """
    run = compared_run(spec, name)
    if run is None or run.ds_config is not None:
        return None
    own = spec.ds_config.get(ACCUMULATION)
    command = LaunchCommand.parse(run.command, f"study '{spec.name}': compare: {name}")
    return (
        _typed(spec, command, MICRO_BATCH) or 0,
        _typed(spec, command, ACCUMULATION) or (own if isinstance(own, int) else 1),
    )


def vanilla_run(spec: StudySpec) -> ComparedRun | None:
    """The user's own run without DeepSpeed: its launcher and sizes, without the flag that names the configuration.

    None: the command cannot say so, because Accelerate's own configuration file may ask for DeepSpeed.
    """
    command = spec.resources.without_config()
    if command is None:
        return None
    command = with_own_flags(spec, command)
    return ComparedRun(name=VANILLA, command=str(command))


def configured_run(
    spec: StudySpec, name: str, config: Mapping[str, Any], where: str, schema: Schema | None
) -> tuple[ComparedRun, list[str]]:
    """The user's own command with another DeepSpeed configuration.

    Flags of the script that repeat its values are set to them.

    Returns:
        The run, and warnings about the configuration.

    Raises:
        DsoptError: a key or value that DeepSpeed does not accept, or a list of values.
    """
    config = {key: value for key, value in config.items() if key not in ("autotuning", "arg_mappings", "model_info")}
    _refuse_lists(config, where)
    command = spec.resources
    ranks = command.ranks * command.nodes if command.ranks else None
    with Mistakes() as mistakes:
        warnings = mistakes.check((), check_config, config, where, schema) if schema is not None else []
        check_values(config, where, ranks, spec.autotuning.mp_size, mistakes)
    command = with_flags_of(command, spec.autotuning.arg_mappings, config)
    return ComparedRun(name=name, command=str(command), ds_config=config), warnings


def _refuse_lists(config: Mapping[str, Any], where: str) -> None:
    """Refuses lists, which only a search could try: a configuration to compare has one value for each key."""
    zero = user_zero(config)
    paths = [MICRO_BATCH, ACCUMULATION, f"{ZERO}stage", *(f"{ZERO}{path}" for path, _ in listed_values(zero))]
    for path in paths:
        value = get_path(config, path)
        if isinstance(value, list) or value == "all":
            raise DsoptError(f"{where}: {path}: {json.dumps(value)}. Expected one value: dsopt measures exactly this.")


def _typed(spec: StudySpec, command: LaunchCommand, key: str) -> int | None:
    flag = spec.autotuning.arg_mappings.get(key)
    value = command.script_value(flag) if flag else None
    return int(value) if value is not None and value.isdecimal() else None
