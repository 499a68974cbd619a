"""Where a command's DeepSpeed configuration stands: in the study, in a file, in the command itself, with Accelerate.

Every way in goes through `find_config`, so that all of them put the same things right and say so.
"""

import base64
import binascii
import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsopt.errors import DsoptError
from dsopt.study.command import LaunchCommand
from dsopt.study.documents import read_text, read_yaml
from dsopt.study.ds_schema import Schema
from dsopt.study.repair import parse_config, put_in_place

# options of `accelerate launch` that would say again what stands in DeepSpeed's configuration
_ACCELERATE_TWINS = (
    "--zero_stage",
    "--gradient_accumulation_steps",
    "--gradient_clipping",
    "--offload_optimizer_device",
    "--offload_param_device",
    "--offload_optimizer_nvme_path",
    "--offload_param_nvme_path",
    "--zero3_save_16bit_model",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenConfig:
    """DeepSpeed's configuration as it was found.

    Attributes:
        content: the configuration, with everything in its place.
        where: the file or place it came from, for messages.
        warnings: what was put right.
    """

    content: dict[str, Any]
    where: str
    warnings: list[str]


def find_config(
    content: Mapping[str, Any], command: LaunchCommand, cwd: Path, where: str, inline_where: str, schema: Schema | None
) -> GivenConfig:
    """DeepSpeed's configuration: `ds_config` of the study, or what the command names, which is a file, JSON text in
    base64, or the file in Accelerate's own configuration.

    Args:
        content: the study.
        command: its command.
        cwd: the folder that the command is started in.
        where: the study's file, for messages.
        inline_where: where its `ds_config` stands, for messages.
        schema: what DeepSpeed reads, or None where that is not known.

    Raises:
        DsoptError: there is none, or it cannot be read.
    """
    config, place, warnings = _read(content.get("ds_config"), command, cwd, where, inline_where)
    warnings += put_in_place(config, place, schema)
    return GivenConfig(content=config, where=place, warnings=warnings)


def config_in(path: Path, schema: Schema | None) -> GivenConfig:
    """The configuration in a file, with everything in its place.

    Raises:
        DsoptError: it cannot be read.
    """
    config, warnings = read_config(path)
    return GivenConfig(content=config, where=str(path), warnings=[*warnings, *put_in_place(config, str(path), schema)])


def read_config(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The configuration in a file as it is written there, and what was put right in its text.

    Raises:
        DsoptError: it cannot be read.
    """
    return parse_config(read_text(path, "DeepSpeed configuration (JSON)"), str(path))


def _read(
    inline: object, command: LaunchCommand, cwd: Path, where: str, inline_where: str
) -> tuple[dict[str, Any], str, list[str]]:
    if isinstance(inline, dict):
        return copy.deepcopy(inline), inline_where, []
    if isinstance(inline, str):
        config, warnings = parse_config(inline, inline_where)
        return config, inline_where, warnings
    if inline is not None:
        raise DsoptError(
            f"{where}: ds_config: {inline!r}. Expected DeepSpeed's configuration as a mapping, or its JSON as text."
        )
    given = command.config
    if given is None and command.launcher.kind == "accelerate":
        given = _from_accelerate(command, cwd, where)
    if given is None:
        raise DsoptError(
            f"{where}: no DeepSpeed configuration: the command has neither '--deepspeed_config FILE' nor "
            "'--deepspeed FILE', and the study has no 'ds_config'. Give one of them."
        )
    path = cwd / given
    decoded = None if _is_file(path) else _decoded(given)
    if decoded is not None:
        place = f"{where}: the configuration given as base64"
        config, warnings = parse_config(decoded, place)
        return config, place, warnings
    config, warnings = read_config(path)
    return config, str(path), warnings


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # base64 of a whole configuration is too long for a file's name
        return False


def _decoded(text: str) -> str | None:
    """The text that is given in (URL-safe) base64, if it is and looks like JSON; DeepSpeed takes it like that."""
    try:
        decoded = base64.urlsafe_b64decode(text.encode("ascii")).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return decoded if decoded.lstrip().startswith(("{", '"', "“")) else None


def _from_accelerate(command: LaunchCommand, cwd: Path, where: str) -> str | None:
    """The DeepSpeed configuration file that Accelerate's own configuration names.

    Raises:
        DsoptError: Accelerate is given DeepSpeed's settings one by one, so that there is no file to tune.
    """
    twins = [name for name in _ACCELERATE_TWINS if command.option(name) is not None]
    file = command.option("--config_file")
    section = read_yaml(cwd / file, "Accelerate configuration (YAML)").get("deepspeed_config", {}) if file else {}
    named = section.get("deepspeed_config_file") if isinstance(section, Mapping) else None
    if isinstance(named, str):
        return named
    if section:
        twins += [f"deepspeed_config.{key} in {file}" for key in section]
    if twins:
        raise DsoptError(
            f"{where}: command: DeepSpeed's settings are given to Accelerate one by one ({', '.join(twins)}). "
            "dsopt tunes a configuration file: write them into one, and name it with --deepspeed_config_file."
        )
    return None
