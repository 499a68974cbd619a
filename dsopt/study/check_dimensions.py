"""Checks a study's dimensions: flags, paths and values that are impossible, contradict each other or do nothing."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.study.check_config import check_listed
from dsopt.study.check_mappings import check_flag, check_mappings, check_single_value
from dsopt.study.ds_config import check_offload, get_path, set_path, user_zero
from dsopt.study.ds_schema import Schema
from dsopt.study.fixed_offload import check_stages
from dsopt.study.isolation import KNOWN
from dsopt.study.mistakes import Mistakes
from dsopt.study.names import LONGEST
from dsopt.study.script_flags import same_flag
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, NUM_GPUS, NUM_NODES, ZERO, listed_values
from dsopt.study.spec import StudySpec

_MOST_KNOBS: Final = 20
_PATH: Final = re.compile(rf"[\w.-]{{1,{LONGEST}}}", re.ASCII)
_SIZES: Final = (f"ds_config.{MICRO_BATCH}", f"ds_config.{ACCUMULATION}", "autotuning.num_gpus", "command.resources")


def check_dimensions(
    spec: StudySpec, where: str, config_where: str, schema: Schema | None, mistakes: Mistakes
) -> list[str]:
    """Checks `search`, `arg_mappings` and the lists in the configuration against each other.

    Args:
        spec: the study.
        where: its file, for messages.
        config_where: where DeepSpeed's configuration is.
        schema: what DeepSpeed reads, or None if that is unknown.
        mistakes: the mistakes found so far; this adds to them.

    Returns:
        Warnings about flags that contradict the configuration, and about dimensions that no stage of the study has.
    """
    flags = ("search.args", "autotuning.arg_mappings")
    paths = ("search.ds_config", "ds_config.zero_optimization")
    warnings = mistakes.check((*flags, *paths, *_SIZES), check_mappings, spec, where, config_where)
    mistakes.check(flags, _check_flags, spec, where)
    mistakes.check(("isolate", *flags), _check_isolated, spec, where)
    warnings += mistakes.check(paths, _check_paths, spec, where, schema)
    mistakes.check(("ds_config",), _check_lists, spec, config_where)
    mistakes.check(paths, check_stages, spec, config_where)
    return warnings + mistakes.check(paths, _idle, spec, where)


def _check_lists(spec: StudySpec, config_where: str) -> None:
    """Refuses lists of values to try at keys that DeepSpeed's autotuner does not try."""
    for key, value in spec.ds_config.items():
        if isinstance(value, list) and key not in (MICRO_BATCH, ACCUMULATION):
            raise DsoptError(
                f"{config_where}: {key}: {value!r}. Expected one value; values to try go in the study file, under "
                "search.ds_config."
            )


def _check_flags(spec: StudySpec, where: str) -> None:
    flags = list(spec.search.args)
    with Mistakes() as mistakes:
        for index, flag in enumerate(flags):
            mistakes.check((), _check_searched, spec, flag, flags[:index], where)


def _check_searched(spec: StudySpec, flag: str, before: Sequence[str], where: str) -> None:
    place = f"{where}: search.args: {flag}"
    check_flag(flag, f"{where}: search.args")
    twin = next((other for other in before if same_flag(other, flag)), None)
    if twin is not None:
        raise DsoptError(f"{place} is the same flag as {twin}. Give its values in one list.")
    if any(same_flag(flag, mapped) for mapped in spec.autotuning.arg_mappings.values()):
        raise DsoptError(f"{place} already follows the configuration (autotuning.arg_mappings). Give its values there.")
    if any(value not in (None, "") for value in spec.search.args[flag]):
        check_single_value(spec, flag, place)


def _check_isolated(spec: StudySpec, where: str) -> None:
    searched = (*spec.search.args, *spec.autotuning.arg_mappings.values())
    for index, flag in enumerate(spec.isolate):
        check_flag(flag, f"{where}: isolate")
        check_single_value(spec, flag, f"{where}: isolate")
        if any(same_flag(flag, other) for other in searched):
            raise DsoptError(
                f"{where}: isolate: the search sets {flag}, too (search.args or autotuning.arg_mappings). "
                "Expected a flag that names what the script writes."
            )
        if any(same_flag(flag, other) for other in spec.isolate[:index]):
            raise DsoptError(f"{where}: isolate: {flag} appears twice. Keep one of them.")
    for flag in searched:
        if any(same_flag(flag, known) for known in KNOWN):
            raise DsoptError(
                f"{where}: {flag} (in search.args or autotuning.arg_mappings): dsopt sets it for each experiment, so "
                "that none resumes from your checkpoints or saves over them. Expected another flag."
            )


def _check_paths(spec: StudySpec, where: str, schema: Schema | None) -> list[str]:
    """Checks the paths of `search.ds_config` as if they were in the configuration."""
    whole: dict[str, Any] = {}
    paths = spec.search.ds_config
    with Mistakes() as mistakes:
        for path in paths:
            mistakes.check((f"search.ds_config.{path}",), _check_path, spec, path, where, schema)
    for path, values in paths.items():
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


def _check_path(spec: StudySpec, path: str, where: str, schema: Schema | None) -> None:
    config, place = spec.ds_config, f"{where}: search.ds_config: {path}"
    *sections, key = path.split(".")
    if not key or not all(sections) or not _PATH.fullmatch(path):
        shown = path if len(path) <= LONGEST else f"{path[:40]}…"
        raise DsoptError(f"{where}: search.ds_config: {shown!r} is not a path. Expected one such as fp16.loss_scale.")
    if path in (NUM_GPUS, NUM_NODES) or path.split(".")[0] == "autotuning":
        raise DsoptError(f"{place} is not a key of DeepSpeed's configuration. It belongs in the study's 'autotuning'.")
    if path in {f"{ZERO}{listed}" for listed, _ in listed_values(user_zero(config))}:
        raise DsoptError(f"{place} already has a list in the DeepSpeed configuration. Keep one of the two.")
    for depth in range(1, len(sections) + 1):
        section = ".".join(sections[:depth])
        given = get_path(config, section)
        is_open = given == "all" or isinstance(given, Mapping) or (given is None and not _is_null(config, section))
        if section in spec.search.ds_config or not is_open:
            raise DsoptError(f"{place}: '{section}' is not a section there. Make it an object, or leave it out.")
    is_section = schema is not None and schema.section(*path.split(".")) is not None
    if is_section or isinstance(get_path(config, path), Mapping):
        raise DsoptError(f"{place} is a section. Expected the path of one of its keys, with a dot.")


def _idle(spec: StudySpec, where: str) -> list[str]:
    """Warns about dimensions that no stage of the study has, such as offloaded parameters without ZeRO 3."""
    tried = {key for stage in spec.stages for key in spec.space(stage, hidden_size=1024).knobs}
    asked = [f"{ZERO}{path}" for path, _ in listed_values(user_zero(spec.ds_config))] + list(spec.search.ds_config)
    listed = ", ".join(str(stage) for stage in spec.stages)
    if len(tried) > _MOST_KNOBS:
        raise DsoptError(f"{where}: search: {len(tried)} dimensions. Expected at most {_MOST_KNOBS}.")
    return [
        f"{where}: {path} makes no difference at ZeRO {listed}: dsopt does not try its values"
        for path in asked
        if path not in tried
    ]


def _is_null(config: Mapping[str, Any], path: str) -> bool:
    """Whether a path has the value null, rather than being absent."""
    *sections, key = path.split(".")
    holder = get_path(config, ".".join(sections)) if sections else config
    return isinstance(holder, Mapping) and key in holder


def _copied(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in section.items()}
