"""A comparison: named configurations of one script that are measured in turn, without a search."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from dsopt.errors import DsoptError
from dsopt.study.check_config import check_config
from dsopt.study.command import LaunchCommand
from dsopt.study.compared import ComparedRun
from dsopt.study.ds_config import baseline_config, check_values, get_path, user_zero
from dsopt.study.ds_schema import Schema
from dsopt.study.mapped_flags import with_flags_of
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, ZERO, listed_values
from dsopt.study.spec import StudySpec

VANILLA: Final = "vanilla"
# what a comparison has of the study it is made of; the rest of a spec is of a search
_KEPT: Final = (
    *("cwd", "ds_config", "start", "timeout_seconds", "isolate", "memory_per_device", "measurement", "max_attempts"),
)
_KEPT_AUTOTUNING: Final = (
    *("results_dir", "exps_dir", "metric", "start_profile_step", "end_profile_step", "mp_size", "arg_mappings"),
)


def comparison_spec(spec: StudySpec, name: str, runs: Sequence[ComparedRun], rounds: int | None) -> StudySpec:
    """The study that compares these runs, and the user's own, of another study's command.

    Args:
        spec: that study, or what a command line alone says.
        name: of the comparison.
        runs: in the order of the table.
        rounds: launches of each; None: as many as that study's confirmation has.

    Raises:
        DsoptError: the name cannot be one, or a run's name stands twice.
    """
    content = spec.model_dump(mode="json", exclude_unset=True)
    tuning = content.get("autotuning", {})
    made: dict[str, Any] = {
        **{key: content[key] for key in _KEPT if key in content},
        "name": name,
        "command": str(spec.resources),
        "autotuning": {key: tuning[key] for key in _KEPT_AUTOTUNING if key in tuning},
        "confirmation": {"rounds": rounds or spec.confirmation.rounds},
        "compare": [run.model_dump(exclude_unset=True) for run in runs],
    }
    try:
        return StudySpec.model_validate(made)
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise DsoptError(f"comparison '{name}': {message}.") from None


def spec_of_run(spec: StudySpec, name: str) -> StudySpec:
    """The spec whose own command and configuration are those of one run of a comparison.

    It is the study's own for everything else that is run: the user's own configuration, and candidates.
    """
    run = compared_run(spec, name)
    if run is None:
        return spec
    content = spec.model_dump(mode="json", exclude_unset=True)
    return StudySpec.model_validate({**content, "command": run.command, "ds_config": run.ds_config or {}})


def specs_of_runs(spec: StudySpec) -> Iterator[StudySpec]:
    """The specs of all that a study runs: its own, and those of a comparison's runs."""
    yield spec
    for run in spec.compare:
        yield spec_of_run(spec, run.name)


def compared_run(spec: StudySpec, name: str) -> ComparedRun | None:
    """A run of a comparison by its name; None for anything else that is run."""
    return next((run for run in spec.compare if run.name == name), None)


def plain_sizes(spec: StudySpec, name: str) -> tuple[int, int] | None:
    """Micro-batch size and accumulation that a run without DeepSpeed says; None for a run with it.

    They are what mapped flags in its command say. Where none does, the micro-batch size is 0 (not said), and the
    accumulation the user's own, else 1.
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

    None: the command cannot say so, as Accelerate's own configuration file names DeepSpeed's.
    """
    command = spec.resources.without_config()
    if command is None:
        return None
    command = with_flags_of(command, spec.autotuning.arg_mappings, baseline_config(spec.ds_config))
    return ComparedRun(name=VANILLA, command=str(command))


def configured_run(
    spec: StudySpec, name: str, config: Mapping[str, Any], where: str, schema: Schema | None
) -> tuple[ComparedRun, list[str]]:
    """The user's own command with a whole DeepSpeed configuration in place of theirs.

    Flags of the script that repeat what is in the configuration are set to it.

    Returns:
        The run, and warnings about the configuration.

    Raises:
        DsoptError: a key or value that DeepSpeed does not take, or a list of values.
    """
    config = {key: value for key, value in config.items() if key not in ("autotuning", "arg_mappings", "model_info")}
    _refuse_lists(config, where)
    warnings = check_config(config, where, schema) if schema is not None else []
    command = spec.resources
    ranks = command.ranks * command.nodes if command.ranks else None
    check_values(config, where, ranks, spec.autotuning.mp_size)
    command = with_flags_of(command, spec.autotuning.arg_mappings, config)
    return ComparedRun(name=name, command=str(command), ds_config=config), warnings


def _refuse_lists(config: Mapping[str, Any], where: str) -> None:
    """A list is what a search would try; a configuration that is compared has one value of each key."""
    zero = user_zero(config)
    paths = [MICRO_BATCH, ACCUMULATION, f"{ZERO}stage", *(f"{ZERO}{path}" for path, _ in listed_values(zero))]
    for path in paths:
        value = get_path(config, path)
        if isinstance(value, list) or value == "all":
            raise DsoptError(f"{where}: {path}: {json.dumps(value)}. Expected one value: this is what is measured.")


def _typed(spec: StudySpec, command: LaunchCommand, key: str) -> int | None:
    flag = spec.autotuning.arg_mappings.get(key)
    value = command.script_value(flag) if flag else None
    return int(value) if value is not None and value.isdecimal() else None
