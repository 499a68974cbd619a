"""`arg_mappings`: finds the keys of DeepSpeed's configuration that the user means, and refuses impossible mappings."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.study.check_config import check_listed
from dsopt.study.documents import nearest
from dsopt.study.ds_config import TRAIN_BATCH, baseline_config, get_path, set_path
from dsopt.study.ds_schema import Schema
from dsopt.study.mapped_flags import contradictions, is_ever_set
from dsopt.study.names import LONGEST
from dsopt.study.script_flags import count_of_values, same_flag
from dsopt.study.script_parser import typed_in
from dsopt.study.space import MICRO_BATCH
from dsopt.study.spec import StudySpec

_SIZE: Final = re.compile("[1-9][0-9]{0,8}")
_FLAG: Final = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
# what dsopt or the launcher sets by itself
_RESERVED_FLAGS: Final = ("--deepspeed", "--deepspeed_config", "--local_rank")
# a name alone may mean a key in one of these sections, or one that is in the configuration
_BY_NAME: Final = ("zero_optimization", "fp16", "bf16")


def full_paths(
    mappings: Mapping[str, str], ds_config: Mapping[str, Any], where: str, schema: Schema | None
) -> dict[str, str]:
    """The mappings with each key as a path in the configuration: DeepSpeed accepts `stage` and `lr` by name alone.

    Args:
        mappings: flags by keys.
        ds_config: DeepSpeed's configuration.
        where: the study's file, for messages.
        schema: what DeepSpeed reads, or None if that is unknown; then keys stay as they are.

    Raises:
        DsoptError: a key that DeepSpeed does not know, or that could mean several.
    """
    paths = {key: _full_path(key, ds_config, f"{where}: autotuning.arg_mappings: '{key}'", schema) for key in mappings}
    twins = [key for key, path in paths.items() if list(paths.values()).count(path) > 1]
    if twins:
        raise DsoptError(f"{where}: autotuning.arg_mappings: {' and '.join(twins)} are the same key. Keep one of them.")
    return {paths[key]: flag for key, flag in mappings.items()}


def check_mappings(spec: StudySpec, where: str, config_where: str) -> list[str]:
    """Checks the flags and what they are mapped to.

    Returns:
        Warnings: a flag that contradicts the configuration, and a key that the configuration does not set.

    Raises:
        DsoptError: an invalid flag, or one that cannot follow its key.
    """
    mappings = spec.autotuning.arg_mappings
    config = baseline_config(spec.ds_config)
    warnings = []
    for path, flag in mappings.items():
        place = f"{where}: autotuning.arg_mappings.{path}"
        check_flag(flag, place)
        check_single_value(spec, flag, place)
        both = [other for other in mappings if same_flag(mappings[other], flag)]
        if len(both) > 1:
            raise DsoptError(
                f"{where}: autotuning.arg_mappings: several keys are mapped to {flag}: {' and '.join(both)}. "
                "Expected a different flag for each."
            )
        value = get_path(config, path)
        if isinstance(value, Mapping | list):
            raise DsoptError(f"{place}: {value!r}. Only a key with a single value can be mapped to a flag.")
        if path == TRAIN_BATCH and spec.resources.ranks is None:
            launcher = spec.launch.launcher
            raise DsoptError(
                f"{place}: it is micro-batch × accumulation × ranks, but the command does not say how many ranks. "
                f"Add {launcher.ranks[0]} to the command."
            )
        warnings += [f"{where}: {text}" for text in _of_other_size(spec, path, flag, config_where)]
        if value is None and not is_ever_set(spec, path):
            warnings.append(
                f"{where}: {path} is mapped to {flag}, but the configuration does not set it: {flag} stays as typed"
            )
    return warnings + [f"{where}: command: {found.text(config_where)}" for found in contradictions(spec)]


def _of_other_size(spec: StudySpec, path: str, flag: str, config_where: str) -> Iterator[str]:
    """Warnings of a size that the configuration lacks, where it has the other one that decides on it.

    What DeepSpeed makes of the two depends on ranks that share a replica, and on the script, which may set both by its
    flags: so the user's own run is as typed.
    """
    config, other = baseline_config(spec.ds_config), {MICRO_BATCH: TRAIN_BATCH, TRAIN_BATCH: MICRO_BATCH}.get(path)
    said = config.get(other) if other else None
    if config.get(path) is not None or not isinstance(said, int):
        return
    given = typed_in(spec, flag)
    if given.value is None and given.perhaps is None:
        yield (
            f"{path} is mapped to {flag}, which neither the configuration says nor the command: your own run has what "
            f"the script takes then, and it has to fit {other} {said}. Add {flag} to the command, or {path} to "
            f"{config_where}"
        )
    elif given.value is not None and _SIZE.fullmatch(given.value):
        total, micro = (int(given.value), said) if path == TRAIN_BATCH else (said, int(given.value))
        if total % micro:
            yield (
                f"command: {flag} {given.value} contradicts {other} {said} in {config_where}, whatever accumulation "
                "and ranks are. Unless the script replaces that, make the two agree"
            )


def check_flag(flag: str, place: str) -> None:
    """Refuses an invalid flag, or one that dsopt sets."""
    if not _FLAG.fullmatch(flag):
        raise DsoptError(f"{place}: {flag!r} is not a flag. Expected one such as --batch_size, without its value.")
    if len(flag.encode()) > LONGEST:
        raise DsoptError(f"{place}: {flag[:40]}… is too long for a flag. Expected at most {LONGEST} characters.")
    if any(same_flag(flag, reserved) for reserved in _RESERVED_FLAGS):
        raise DsoptError(f"{place}: dsopt sets {flag} for every run. Choose another flag.")


def check_single_value(spec: StudySpec, flag: str, place: str) -> None:
    """Refuses a flag that the command gives several values."""
    count = count_of_values(spec.launch.script_args, flag)
    if count > 1:
        raise DsoptError(
            f"{place}: the command gives {flag} {count} values, but dsopt can set only one. "
            "Leave it out, or let the script take one value."
        )


def _full_path(key: str, ds_config: Mapping[str, Any], place: str, schema: Schema | None) -> str:
    first, *others = key.split(".")
    if schema is not None and first in schema.root.keys and first != "autotuning" and all(others):
        if schema.section(*key.split(".")) is not None:
            raise DsoptError(f"{place} is a section. Expected the path of one of its keys, with a dot.")
        whole: dict[str, Any] = {}
        set_path(whole, key, "auto")
        check_listed(whole, place, schema)
        return key
    known = schema.root.paths() if schema is not None else ()
    by_name = [path for path in known if "." not in path or path.split(".")[0] in _BY_NAME]
    paths = dict.fromkeys([*_paths(ds_config), *by_name])
    meant: list[str] = [path for path in paths if path.endswith(f".{key}")]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise DsoptError(f"{place} could be {_either(meant)}. Write the one you mean in full.")
    if schema is None:
        return key
    near = nearest(key, paths)
    hint = f"Did you mean '{near}'? " if near else ""
    raise DsoptError(
        f"{place} is not a key of DeepSpeed's configuration. {hint}Expected one such as {MICRO_BATCH} or "
        "optimizer.params.lr."
    )


def _paths(section: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The paths of all single values and lists in a configuration."""
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _either(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
