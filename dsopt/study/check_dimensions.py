"""What of a study's dimensions cannot be meant: flags, paths and values that contradict each other or do nothing."""

from collections.abc import Mapping
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.study.check_config import check_listed
from dsopt.study.check_mappings import check_flag, check_mappings, check_single_value
from dsopt.study.ds_config import check_offload, get_path, set_path, user_zero
from dsopt.study.ds_schema import Schema
from dsopt.study.fixed_offload import check_stages
from dsopt.study.isolation import KNOWN
from dsopt.study.script_flags import same_flag
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, NUM_GPUS, NUM_NODES, ZERO, listed_values
from dsopt.study.spec import StudySpec

_MOST_KNOBS: Final = 20


def check_dimensions(spec: StudySpec, where: str, config_where: str, schema: Schema | None) -> list[str]:
    """Checks `search`, `arg_mappings` and the lists in the configuration against each other.

    Args:
        spec: the study.
        where: its file, for messages.
        config_where: where DeepSpeed's configuration stands.
        schema: what DeepSpeed reads, or None where that is not known.

    Returns:
        Warnings about flags that contradict the configuration, and dimensions that no stage of the study has.

    Raises:
        DsoptError: what cannot be meant, with key and value.
    """
    warnings = check_mappings(spec, where, config_where)
    _check_flags(spec, where)
    _check_isolated(spec, where)
    warnings += _check_paths(spec, where, schema)
    for key, value in spec.ds_config.items():
        if isinstance(value, list) and key not in (MICRO_BATCH, ACCUMULATION):
            raise DsoptError(
                f"{config_where}: {key}: {value!r}. Expected one value; values to try stand in the study file under "
                "search.ds_config."
            )
    check_stages(spec, config_where)
    return warnings + _idle(spec, where)


def _check_flags(spec: StudySpec, where: str) -> None:
    flags = list(spec.search.args)
    for index, flag in enumerate(flags):
        place = f"{where}: search.args: {flag}"
        check_flag(flag, f"{where}: search.args")
        twin = next((other for other in flags[:index] if same_flag(other, flag)), None)
        if twin is not None:
            raise DsoptError(f"{place} is {twin} again. Give its values in one list.")
        if any(same_flag(flag, mapped) for mapped in spec.autotuning.arg_mappings.values()):
            raise DsoptError(
                f"{place} follows the configuration already (autotuning.arg_mappings). Give its values there."
            )
        if any(value not in (None, "") for value in spec.search.args[flag]):
            check_single_value(spec, flag, place)


def _check_isolated(spec: StudySpec, where: str) -> None:
    searched = (*spec.search.args, *spec.autotuning.arg_mappings.values())
    for index, flag in enumerate(spec.isolate):
        check_flag(flag, f"{where}: isolate")
        check_single_value(spec, flag, f"{where}: isolate")
        if any(same_flag(flag, other) for other in searched):
            raise DsoptError(
                f"{where}: isolate: {flag} is set by the search too (search.args or autotuning.arg_mappings). "
                "Expected a flag that names what the script writes."
            )
        if any(same_flag(flag, other) for other in spec.isolate[:index]):
            raise DsoptError(f"{where}: isolate: {flag} appears twice. Keep one of them.")
    for flag in searched:
        if any(same_flag(flag, known) for known in KNOWN):
            raise DsoptError(
                f"{where}: {flag} (in search.args or autotuning.arg_mappings): dsopt sets it for each experiment, so "
                "that none resumes from or saves to what is yours. Expected another flag."
            )


def _check_paths(spec: StudySpec, where: str, schema: Schema | None) -> list[str]:
    """Checks the paths of `search.ds_config` as if they stood in the configuration."""
    whole: dict[str, Any] = {}
    paths = spec.search.ds_config
    in_config = {f"{ZERO}{path}" for path, _ in listed_values(user_zero(spec.ds_config))}
    for path, values in paths.items():
        place = f"{where}: search.ds_config: {path}"
        *sections, key = path.split(".")
        if not key or not all(sections):
            raise DsoptError(f"{where}: search.ds_config: {path!r} is no path. Expected one such as fp16.loss_scale.")
        if path in (NUM_GPUS, NUM_NODES) or path.split(".")[0] == "autotuning":
            raise DsoptError(f"{place} is no key of DeepSpeed's configuration. Give it in the study's 'autotuning'.")
        if path in in_config:
            raise DsoptError(f"{place} has a list in the DeepSpeed configuration already. Keep one of the two.")
        above = [".".join(path.split(".")[:depth]) for depth in range(1, len(path.split(".")))]
        for section in above:
            given = get_path(spec.ds_config, section)
            blocked = section in paths or (given is not None and not isinstance(given, Mapping) and given != "all")
            if blocked or (given is None and _is_null(spec.ds_config, section)):
                raise DsoptError(f"{place}: '{section}' is no section there. Give it an object, or leave it out.")
        is_section = schema is not None and schema.section(*path.split(".")) is not None
        if is_section or isinstance(get_path(spec.ds_config, path), Mapping):
            raise DsoptError(f"{place} is a section. Expected the path of one of its keys, with a dot.")
        set_path(whole, path, values if len(values) > 1 else values[0])
    if any(path.startswith(ZERO) for path in paths):
        merged = {**user_zero(spec.ds_config)}
        for path, values in paths.items():
            if path.startswith(ZERO):
                holder = {"zero": _copied(merged)}
                set_path(holder, f"zero.{path.removeprefix(ZERO)}", values)
                merged = holder["zero"]
        check_offload({"zero_optimization": merged}, f"{where}: search.ds_config")
    return check_listed(whole, f"{where}: search.ds_config", schema) if schema is not None else []


def _idle(spec: StudySpec, where: str) -> list[str]:
    """Dimensions that no stage of the study has, such as offloaded parameters without ZeRO 3."""
    tried = {key for stage in spec.stages for key in spec.space(stage, hidden_size=1024).knobs}
    asked = [f"{ZERO}{path}" for path, _ in listed_values(user_zero(spec.ds_config))] + list(spec.search.ds_config)
    listed = ", ".join(str(stage) for stage in spec.stages)
    if len(tried) > _MOST_KNOBS:
        raise DsoptError(f"{where}: search: {len(tried)} dimensions. Expected at most {_MOST_KNOBS}.")
    return [
        f"{where}: {path} makes no difference at ZeRO {listed}: its values are not tried"
        for path in asked
        if path not in tried
    ]


def _is_null(config: Mapping[str, Any], path: str) -> bool:
    """Whether a path holds null, rather than nothing at all."""
    *sections, key = path.split(".")
    holder = get_path(config, ".".join(sections)) if sections else config
    return isinstance(holder, Mapping) and key in holder


def _copied(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in section.items()}
