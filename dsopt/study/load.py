"""Makes a checked StudySpec from what a person wrote: a YAML file, or only a command line."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.study.check_command import check_command
from dsopt.study.check_config import check_config
from dsopt.study.check_dimensions import check_dimensions
from dsopt.study.check_mappings import full_paths
from dsopt.study.check_resources import check_resources
from dsopt.study.check_simulation import check_simulation
from dsopt.study.check_sizes import check_device_memory, check_sizes, check_window
from dsopt.study.command import LaunchCommand
from dsopt.study.command_secrets import config_warnings, secret_warnings
from dsopt.study.documents import check_text, is_folder, read_yaml
from dsopt.study.ds_config import check_values
from dsopt.study.ds_schema import Schema, schema_if_readable
from dsopt.study.folders import check_path
from dsopt.study.given_config import GivenConfig, find_config
from dsopt.study.isolation import config_notes, isolation_notes
from dsopt.study.known_keys import IGNORED_AUTOTUNING, SECTIONS, known_part, known_section
from dsopt.study.mistakes import Mistakes
from dsopt.study.spec import StudySpec
from dsopt.study.trainer import trainer_mappings
from dsopt.study.typed import typed_words
from dsopt.study.validated import valid_autotuning, validated

# keys that say how many ranks a run has, and what makes up a batch
_RANKS: Final = ("command.resources", "simulation", "autotuning.num_gpus", "autotuning.num_nodes", "autotuning.mp_size")
_BATCH: Final = ("ds_config.train_micro_batch_size_per_gpu", "ds_config.gradient_accumulation_steps")
_BOUNDS: Final = (
    *(f"autotuning.{end}_train_micro_batch_size_per_gpu" for end in ("min", "max")),
    *(f"autotuning.{end}_train_batch_size" for end in ("min", "max")),
)


def load_spec(path: Path, name: str | None = None) -> tuple[StudySpec, list[str]]:
    """Reads a study file. Paths in it are relative to its own folder, unless it gives `cwd`; `name` replaces
    its name.

    Returns:
        The spec, and warnings about keys that dsopt passes on although DeepSpeed does not know them.
    """
    content = read_yaml(path)
    folder = path.resolve().parent
    if isinstance(content.get("cwd", ""), str):
        content["cwd"] = os.path.realpath(folder / content.get("cwd", ""))
    content["name"] = content.get("name", path.stem) if name is None else name
    return build_spec(content, str(path))


def build_spec(content: Mapping[str, Any], where: str, inline_where: str | None = None) -> tuple[StudySpec, list[str]]:
    """Checks the content of a study file, or of a command line in the same form.

    The `autotuning` section may be in the study, in its `ds_config` or in the JSON file that the command names; the
    study's own keys win, key by key.

    Args:
        content: the study.
        where: the file it is in, for messages.
        inline_where: the file that its `ds_config` came from, if any.

    Raises:
        DsoptError: everything to correct, each with file, key, value, and what was expected.
    """
    with Mistakes() as mistakes:
        check_text(content, where)
        content = known_part(content, where, mistakes)
        command, warnings = _read_command(content, where, mistakes)
        cwd = _read_cwd(content, where, mistakes)
        if content.get("start") == "shared":
            content["start"] = "warm"
            warnings.append(f"{where}: start: 'shared' is no longer supported; this study uses 'warm'")
        content |= {"command": str(command), "cwd": str(cwd)}
        is_dry = any(content.get(key) is not None for key in ("simulation", "launcher"))
        mistakes.check((), check_command, command, cwd, where, is_simulated=is_dry)
        schema, unread = schema_if_readable(where)
        source = _read_config(content, command, where, inline_where or f"{where}: ds_config", schema, mistakes)
        ds_config, config_where = source.content, source.where
        warnings += unread + source.warnings
        autotuning = _take_autotuning(ds_config, config_where, mistakes)
        if schema is not None:
            warnings += mistakes.check((), check_config, ds_config, config_where, schema)
        spec = validated(_document(content, ds_config, autotuning), where, mistakes)
        spec, mapped = _with_mappings(spec, where, schema, mistakes)
        warnings += mapped + _check_together(spec, where, config_where, schema, mistakes)
        warnings += secret_warnings(command, where) + config_warnings(ds_config, config_where)
        warnings += [f"{config_where}: {note}" for note in config_notes(ds_config)]
        return spec, warnings + [f"{where}: {note}" for note in isolation_notes(command, spec.isolate)]


def _read_command(content: Mapping[str, Any], where: str, mistakes: Mistakes) -> tuple[LaunchCommand, list[str]]:
    """The command of a study, and warnings about what dsopt leaves out of it. Nothing can be checked without it."""
    if "command" not in content:
        mistakes.end_if_doubtful("command")
        raise DsoptError(f"{where}: key 'command' is missing. Expected the launch command that you type today.")
    typed = content["command"]
    if isinstance(typed, list) and not all(isinstance(w, str | int | float) and not isinstance(w, bool) for w in typed):
        raise DsoptError(f"{where}: command: {typed!r}. Expected a list of words, each text or a number.")
    words = typed_words(typed if isinstance(typed, list) else str(typed), f"{where}: command")
    command = LaunchCommand.parse(words, f"{where}: command")
    warnings = []
    if command.option("--autotuning") is not None:
        command = command.without_options("--autotuning")
        warnings.append(f"{where}: command: dsopt leaves out --autotuning: it would start DeepSpeed's own tuner")
    if not str(command).isprintable():
        raise DsoptError(f"{where}: command: contains a character that is not printable or not valid text. Remove it.")
    return command, warnings


def _read_cwd(content: Mapping[str, Any], where: str, mistakes: Mistakes) -> Path:
    """The folder that a study's command starts in; dsopt looks for all other files there."""
    mistakes.end_if_doubtful("cwd")
    cwd = Path(str(content.get("cwd", Path.cwd())))
    check_text(str(cwd), f"{where}: cwd")
    if not is_folder(cwd):
        raise DsoptError(f"{where}: cwd: {str(cwd)!r} is not a folder. Expected the folder that the command starts in.")
    return cwd


def _read_config(
    content: Mapping[str, Any],
    command: LaunchCommand,
    where: str,
    inline_where: str,
    schema: Schema | None,
    mistakes: Mistakes,
) -> GivenConfig:
    """DeepSpeed's configuration. Without one, dsopt checks only the study's own values."""
    try:
        mistakes.end_if_doubtful("ds_config")
        source = find_config(content, command, Path(content["cwd"]), where, inline_where, schema)
        _check_json(source.content, source.where)
    except DsoptError as error:
        mistakes.take(error)
        validated(_document(content, {}, {}), where, mistakes)
        raise
    return source


def _take_autotuning(ds_config: dict[str, Any], where: str, mistakes: Mistakes) -> dict[str, Any]:
    """Removes the `autotuning` section from DeepSpeed's configuration, and returns it."""
    section = ds_config.pop("autotuning", {})
    if not isinstance(section, Mapping):
        mistakes.add(f"{where}: autotuning: {section!r}. Expected an object.", "autotuning")
        return {}
    known = known_section(section, "autotuning", where, mistakes)
    return valid_autotuning(_useful(known), where, mistakes)


def _document(
    content: Mapping[str, Any], ds_config: Mapping[str, Any], autotuning: Mapping[str, Any]
) -> dict[str, Any]:
    """A whole study, with its configuration; `autotuning` is the section from DeepSpeed's configuration."""
    given = {key: value for key, value in content.items() if value is not None or key not in SECTIONS}
    outer = given.pop("autotuning", {})
    merged = _useful(_merged(autotuning, outer)) if isinstance(outer, Mapping) else outer
    return {**given, "ds_config": ds_config, **({"autotuning": merged} if merged else {})}


def _merged(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> dict[str, Any]:
    """Two `autotuning` sections, the outer one winning, key by key; so do the flags that they map."""
    mappings = [section["arg_mappings"] for section in (inner, outer) if "arg_mappings" in section]
    both = len(mappings) == 2 and all(isinstance(each, Mapping) for each in mappings)
    return {**inner, **outer, **({"arg_mappings": {**mappings[0], **mappings[1]}} if both else {})}


def _useful(autotuning: Mapping[str, Any]) -> dict[str, Any]:
    """The section without the keys that dsopt ignores."""
    useful = {key: value for key, value in autotuning.items() if key not in ("enabled", *IGNORED_AUTOTUNING)}
    for key in ("results_dir", "exps_dir"):
        if isinstance(useful.get(key), str):
            useful[key] = os.path.expandvars(str(Path(useful[key]).expanduser()))
    return useful


def _check_json(ds_config: Mapping[str, Any], where: str) -> None:
    """Refuses values that YAML can express and DeepSpeed's configuration cannot."""
    try:
        plain = {key: value for key, value in ds_config.items() if key != "autotuning"}
        _write_json(plain)
    except (TypeError, ValueError, RecursionError) as error:
        try:
            path = _unwritable(plain)
        except RecursionError:  # it contains itself
            path = ""
        named = f"key '{path}' " if path else ""
        raise DsoptError(f"{where}: {named}cannot be written as JSON: {error}. Correct the value.") from None


def _unwritable(value: Any, path: str = "") -> str:  # noqa: ANN401 - anything that YAML can express
    """The path of the first value that JSON cannot express; empty if none is."""
    if isinstance(value, Mapping | list) and value:
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        return next(
            (found for key, each in items if (found := _unwritable(each, f"{path}.{key}" if path else f"{key}"))), ""
        )
    try:
        _write_json(value)
    except (TypeError, ValueError):
        return path
    return ""


def _write_json(value: Any) -> bytes:  # noqa: ANN401 - anything that YAML can express
    return json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")


def _with_mappings(
    spec: StudySpec, where: str, schema: Schema | None, mistakes: Mistakes
) -> tuple[StudySpec, list[str]]:
    """The spec with full paths in its mappings and with the Trainer's usual flags mapped, and a note about these."""
    given = spec.autotuning.arg_mappings
    with mistakes.kept("autotuning.arg_mappings"):
        given = full_paths(given, spec.ds_config, where, schema)
    found = trainer_mappings(spec.launch, Path(spec.cwd), given)
    if given | found != spec.autotuning.arg_mappings:
        tuning = spec.autotuning.model_copy(update={"arg_mappings": given | found})
        spec = spec.model_copy(update={"autotuning": tuning})
    listed = ", ".join(f"{flag} follows {key}" for key, flag in found.items())
    said = f"{where}: dsopt sets flags of the Hugging Face Trainer together with the configuration: {listed}"
    return spec, [said] if found else []


def _check_together(
    spec: StudySpec, where: str, config_where: str, schema: Schema | None, mistakes: Mistakes
) -> list[str]:
    """Checks keys against each other."""
    ranks, mp_size = spec.resources.ranks, spec.autotuning.mp_size
    total = ranks * spec.resources.nodes if ranks and not mistakes.is_doubtful(*_RANKS) else None
    check_values(spec.ds_config, config_where, total, mp_size, mistakes)
    mistakes.check(("autotuning.start_profile_step", "autotuning.end_profile_step"), check_window, spec, where)
    mistakes.check(("launcher", *_RANKS), check_simulation, spec, where)
    mistakes.check((*_RANKS, *_BATCH, *_BOUNDS), check_sizes, spec, where)
    mistakes.check(("memory_per_device",), check_device_memory, spec, where)
    warnings = mistakes.check(_RANKS, check_resources, spec, where)
    for key, folder in (("autotuning.results_dir", spec.results_dir), ("autotuning.exps_dir", spec.exps_dir)):
        mistakes.check((key,), check_path, Path(spec.cwd), folder, f"{where}: {key}")
    return warnings + check_dimensions(spec, where, config_where, schema, mistakes)
