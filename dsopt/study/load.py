"""From what a person wrote (a YAML file, or a command line alone) to a checked StudySpec."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dsopt.errors import DsoptError
from dsopt.study.autotuning import Autotuning
from dsopt.study.check_command import check_command
from dsopt.study.check_config import check_config
from dsopt.study.check_dimensions import check_dimensions
from dsopt.study.check_mappings import full_paths
from dsopt.study.check_simulation import check_simulation
from dsopt.study.command import LaunchCommand
from dsopt.study.dimensions import Search
from dsopt.study.documents import nearest, read_yaml
from dsopt.study.ds_config import check_values
from dsopt.study.ds_schema import schema_if_readable
from dsopt.study.given_config import find_config
from dsopt.study.isolation import isolation_notes
from dsopt.study.own_sizes import smallest_micro_batch
from dsopt.study.simulation import SimulatedGpu, SimulatedModel, Simulation
from dsopt.study.spec import Confirmation, MeasurementBudget, StudySpec
from dsopt.study.trainer import trainer_mappings
from dsopt.study.typed import typed_words

_SECTIONS: dict[str, type[BaseModel]] = {
    "autotuning": Autotuning, "search": Search, "measurement": MeasurementBudget, "confirmation": Confirmation,
    "simulation": Simulation,
}  # fmt: skip
# What DeepSpeed reads in `autotuning` for its own plumbing, and what dsopt has no use for.
_IGNORED_AUTOTUNING = ("metric_path", "model_info_path")


def load_spec(path: Path, name: str | None = None) -> tuple[StudySpec, list[str]]:
    """Reads a study file. Paths in it are relative to its own folder, unless it gives `cwd`; `name` replaces
    its name.

    Returns:
        The spec, and warnings about keys that are passed on although DeepSpeed does not know them.
    """
    content = read_yaml(path)
    folder = path.resolve().parent
    if isinstance(content.get("cwd", ""), str):
        content["cwd"] = str((folder / content.get("cwd", "")).resolve())
    content["name"] = content.get("name", path.stem) if name is None else name
    return build_spec(content, str(path))


def build_spec(content: Mapping[str, Any], where: str, inline_where: str | None = None) -> tuple[StudySpec, list[str]]:
    """Checks the content of a study file, or of a command line in its shape.

    The `autotuning` section may stand in the study, in its `ds_config` or in the JSON file that the command names; the
    study's own keys win, key by key.

    Args:
        content: the study.
        where: the file it stands in, for messages.
        inline_where: the file that its `ds_config` was taken from, if it was.

    Raises:
        DsoptError: anything a person has to correct, with file, key, value, and what was expected.
    """
    content = dict(content)
    _refuse_unknown_keys(content, where)
    if "command" not in content:
        raise DsoptError(f"{where}: key 'command' is missing. Expected the launch command you type today.")
    typed = content["command"]
    if isinstance(typed, list) and not all(isinstance(w, str | int | float) and not isinstance(w, bool) for w in typed):
        raise DsoptError(f"{where}: command: {typed!r}. Expected a list of words, texts or numbers.")
    words = typed_words(typed if isinstance(typed, list) else str(typed), f"{where}: command")
    command = LaunchCommand.parse(words, f"{where}: command")
    warnings = []
    if command.option("--autotuning") is not None:
        command = command.without_options("--autotuning")
        warnings.append(f"{where}: command: --autotuning is left out: it would start DeepSpeed's own tuner")
    content["command"] = str(command)
    if not str(command).isprintable():
        raise DsoptError(f"{where}: command: holds a character that cannot be printed or is no valid text.")
    cwd = Path(str(content.get("cwd", Path.cwd())))
    if "\0" in str(cwd) or not cwd.is_dir():
        raise DsoptError(f"{where}: cwd: {str(cwd)!r} is not a folder. Expected the folder the command is started in.")
    check_command(command, cwd, where, is_simulated=content.get("launcher") is not None)
    schema, unread = schema_if_readable(where)
    source = find_config(content, command, cwd, where, inline_where or f"{where}: ds_config", schema)
    ds_config, config_where = source.content, source.where
    warnings += unread + source.warnings
    autotuning = _take_autotuning(ds_config, config_where)
    content = {key: value for key, value in content.items() if value is not None or key not in _SECTIONS}
    outer = content.pop("autotuning", {})
    merged = _useful({**autotuning, **outer}) if isinstance(outer, Mapping) else outer
    _check_json(ds_config, config_where)
    warnings += check_config(ds_config, config_where, schema) if schema is not None else []
    document: dict[str, Any] = {**content, "cwd": str(cwd), "ds_config": ds_config}
    if merged:
        document["autotuning"] = merged
    spec = _validated(document, where)
    given = full_paths(spec.autotuning.arg_mappings, ds_config, where, schema)
    found = trainer_mappings(command, cwd, given)
    if given | found != spec.autotuning.arg_mappings:
        document["autotuning"] = {**(merged or {}), "arg_mappings": given | found}
        spec = _validated(document, where)
    if found:
        listed = ", ".join(f"{flag} follows {key}" for key, flag in found.items())
        warnings.append(f"{where}: flags of the Hugging Face Trainer are set with the configuration: {listed}")
    ranks = spec.resources.ranks
    total = ranks * spec.resources.nodes if ranks else None
    check_values(spec.ds_config, config_where, total, spec.autotuning.mp_size)
    _check_window(spec.autotuning, where)
    check_simulation(spec, where)
    _check_sizes(spec, where)
    warnings += _check_resources(spec, cwd, where)
    _check_folders(spec, where)
    warnings += check_dimensions(spec, where, config_where, schema)
    warnings += [f"{where}: {note}" for note in isolation_notes(command, spec.isolate)]
    return spec, warnings


def _validated(document: Mapping[str, Any], where: str) -> StudySpec:
    try:
        return StudySpec.model_validate(document)
    except ValidationError as error:
        raise DsoptError(_explain(error.errors()[0], where)) from None


def _take_autotuning(ds_config: dict[str, Any], where: str) -> dict[str, Any]:
    """Takes the `autotuning` section out of DeepSpeed's configuration."""
    section = ds_config.pop("autotuning", {})
    if not isinstance(section, Mapping):
        raise DsoptError(f"{where}: autotuning: {section!r}. Expected an object.")
    _refuse_unknown_keys({"autotuning": section}, where)
    _check_section(section, where)
    return dict(section)


def _useful(autotuning: Mapping[str, Any]) -> dict[str, Any]:
    """The section without what says nothing to dsopt."""
    useful = {key: value for key, value in autotuning.items() if key not in ("enabled", *_IGNORED_AUTOTUNING)}
    for key in ("results_dir", "exps_dir"):
        if isinstance(useful.get(key), str):
            useful[key] = os.path.expandvars(str(Path(useful[key]).expanduser()))
    return useful


def _check_section(autotuning: Mapping[str, Any], where: str) -> None:
    """Checks an `autotuning` section by itself, so that the file it stands in is the one that is named."""
    try:
        Autotuning.model_validate(_useful(autotuning))
    except ValidationError as error:
        details = error.errors()[0]
        raise DsoptError(_explain({**details, "loc": ("autotuning", *details["loc"])}, where)) from None


def _check_json(ds_config: Mapping[str, Any], where: str) -> None:
    """Refuses what YAML can hold and DeepSpeed's configuration cannot."""
    try:
        json.dumps(ds_config, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise DsoptError(f"{where}: cannot be written as JSON: {error}. Correct the value.") from None


def _refuse_unknown_keys(content: Mapping[str, Any], where: str) -> None:
    """Pydantic would refuse them too, but not say which key was probably meant."""
    if set(content) - {"autotuning"}:
        _refuse(content, StudySpec, "", where)
    for section, model in _SECTIONS.items():
        if isinstance(content.get(section), Mapping):
            _refuse(content[section], model, f"{section}.", where)
    simulation = content.get("simulation")
    for key, part in (("gpu", SimulatedGpu), ("model", SimulatedModel)):
        if isinstance(simulation, Mapping) and isinstance(simulation.get(key), Mapping):
            _refuse(simulation[key], part, f"simulation.{key}.", where)


def _refuse(keys: Mapping[str, Any], model: type[BaseModel], prefix: str, where: str) -> None:
    known = set(model.model_fields)
    if model is Autotuning:
        known |= {"start_step", "end_step", *_IGNORED_AUTOTUNING}
    for key in keys:
        if key not in known:
            meant = nearest(str(key), known, cutoff=0.6)
            hint = f"Did you mean '{prefix}{meant}'?" if meant else f"Expected one of: {', '.join(sorted(known))}."
            raise DsoptError(f"{where}: unknown key '{prefix}{key}'. {hint}")


def _check_window(autotuning: Autotuning, where: str) -> None:
    if autotuning.window and autotuning.end_profile_step < autotuning.start_profile_step:
        raise DsoptError(
            f"{where}: autotuning.end_profile_step: {autotuning.end_profile_step} lies before "
            f"start_profile_step {autotuning.start_profile_step}. Expected a later step."
        )


def _check_sizes(spec: StudySpec, where: str) -> None:
    """Refuses micro-batch sizes and bounds that leave nothing to try."""
    tuning = spec.autotuning
    least, most = tuning.min_train_micro_batch_size_per_gpu, tuning.max_train_micro_batch_size_per_gpu
    listed = spec.micro_batch_list or ()
    smallest = least if listed else smallest_micro_batch(spec)
    if most is not None and most < smallest:
        raise DsoptError(
            f"{where}: autotuning.max_train_micro_batch_size_per_gpu: {most} is below the smallest micro-batch size "
            f"to try, {smallest}. Expected at least that."
        )
    outside = [size for size in listed if size < least or (most is not None and size > most)]
    if outside:
        raise DsoptError(
            f"{where}: train_micro_batch_size_per_gpu: {outside[0]} is outside of autotuning's "
            f"min_ and max_train_micro_batch_size_per_gpu ({least} to {most or 'any'}). Correct one of them."
        )
    total = tuning.max_train_batch_size
    if total is None:
        return
    if tuning.min_train_batch_size > total:
        raise DsoptError(
            f"{where}: autotuning.max_train_batch_size: {total} is below min_train_batch_size "
            f"{tuning.min_train_batch_size}. Expected at least that."
        )
    replicas = (spec.resources.ranks or 1) * spec.resources.nodes // tuning.mp_size
    needed = min(listed or (smallest,)) * min(spec.accumulation_list or (1,)) * max(1, replicas)
    if needed > total:
        raise DsoptError(
            f"{where}: autotuning.max_train_batch_size: {total} is below the smallest batch there is, {needed} "
            "(micro-batch × accumulation × ranks ÷ mp_size). Expected at least that."
        )


def _check_resources(spec: StudySpec, cwd: Path, where: str) -> list[str]:
    """Checks the command with every number of nodes that it is to run on; a warning tells of a host file left out."""
    filtered = next((name for name in spec.launch.launcher.devices if spec.launch.option(name) is not None), None)
    if filtered is not None and spec.autotuning.num_gpus is not None:
        raise DsoptError(
            f"{where}: autotuning.num_gpus: {spec.autotuning.num_gpus}: the command chooses its devices with "
            f"{filtered}. Keep one of the two."
        )
    warnings = [
        f"{where}: autotuning.{key}: {given}: runs have that many, your own too, though the command says {typed}"
        for key, given, typed in (
            ("num_gpus", spec.autotuning.num_gpus, spec.launch.option(*spec.launch.launcher.ranks)),
            ("num_nodes", spec.autotuning.num_nodes, spec.launch.option(*spec.launch.launcher.nodes)),
        )
        if isinstance(given, int) and typed is not None and str(given) != typed
    ]
    given = spec.autotuning.num_nodes
    check_command(spec.resources, cwd, where, is_simulated=spec.is_simulated)
    for nodes in given if isinstance(given, list) else []:
        check_command(spec.resources.with_nodes(nodes), cwd, where, is_simulated=spec.is_simulated)
    if spec.resources.hostfile != spec.launch.hostfile:
        warnings.append(
            f"{where}: command: --hostfile {spec.launch.hostfile} is left out: a run on one node starts on its "
            "worker's own; start a worker on each node"
        )
    return warnings


def _check_folders(spec: StudySpec, where: str) -> None:
    for key, folder in (("results_dir", spec.results_dir), ("exps_dir", spec.exps_dir)):
        try:
            path = Path(spec.cwd) / folder
            is_file = path.exists() and not path.is_dir()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DsoptError(
                f"{where}: autotuning.{key}: {folder!r} is no path: {reason}. Expected a folder."
            ) from None
        if is_file:
            raise DsoptError(f"{where}: autotuning.{key}: {folder!r} is a file. Expected a folder.")


def _explain(error: ErrorDetails, where: str) -> str:
    """One of pydantic's findings as a sentence with key, value and expectation."""
    location: Sequence[Any] = error["loc"]
    key = ".".join(str(part) for part in location)
    value = error["input"]
    kind = error["type"]
    if kind == "missing":
        return f"{where}: key '{key}' is missing."
    if kind == "literal_error":
        allowed = error["ctx"]["expected"]
        meant = nearest(str(value).strip(), [word.strip("' ") for word in allowed.replace(" or ", ",").split(",")], 0.6)
        return f"{where}: {key}: {value!r}. Expected {allowed}." + (f" Did you mean {meant!r}?" if meant else "")
    if kind == "string_pattern_mismatch":
        return (
            f"{where}: {key}: {value!r}. Expected a name of letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit, at most 100 of them (on the command line: --name)."
        )
    message = error["msg"].removeprefix("Value error, ")
    if not location:  # of several keys together: the message names them
        return f"{where}: {message}."
    if message.split(maxsplit=1)[0].isalpha():  # a sentence, not a key
        message = message[0].upper() + message[1:]
    return f"{where}: {key}: {value!r}. {message}."
