"""Finds a command's DeepSpeed configuration: in the study, in a file, in the command itself, or through Accelerate.

All of them go through `find_config`, which corrects the same things for all and warns about each.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsopt.errors import DsoptError
from dsopt.study.command import CONFIG_FLAGS, LaunchCommand
from dsopt.study.documents import is_file, nearest, read_text
from dsopt.study.ds_schema import Schema
from dsopt.study.inline_config import decoded
from dsopt.study.repair import parse_config, put_in_place
from dsopt.study.spec import StudySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenConfig:
    """DeepSpeed's configuration as dsopt found it.

    Attributes:
        content: the configuration, with every key in its section.
        where: the file or place it came from, for messages.
        warnings: what dsopt corrected.
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
        cwd: the folder that the command starts in.
        where: the study's file, for messages.
        inline_where: where its `ds_config` is, for messages.
        schema: what DeepSpeed reads, or None if that is unknown.

    Raises:
        DsoptError: there is none, or it cannot be read.
    """
    config, place, warnings = _read(content.get("ds_config"), command, cwd, where, inline_where)
    warnings += put_in_place(config, place, schema)
    return GivenConfig(content=config, where=place, warnings=warnings)


def config_in(path: Path, schema: Schema | None) -> GivenConfig:
    """The configuration in a file, with every key in its section.

    Raises:
        DsoptError: it cannot be read.
    """
    config, warnings = read_config(path)
    return GivenConfig(content=config, where=str(path), warnings=[*warnings, *put_in_place(config, str(path), schema)])


def read_config(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The configuration in a file as it is written there, and warnings about what dsopt corrected in its text.

    Raises:
        DsoptError: it cannot be read.
    """
    return parse_config(read_text(path, "DeepSpeed configuration (JSON)"), str(path))


def named_config(spec: StudySpec) -> str | None:
    """What a study's command names as its configuration; None, too, where Accelerate's own cannot be read now."""
    try:
        return _named(spec.launch, Path(spec.cwd), f"study '{spec.name}'")
    except (DsoptError, OSError):
        return None


def _named(command: LaunchCommand, cwd: Path, where: str) -> str | None:
    """What a command names as its configuration, itself or through Accelerate: a file, or the JSON text in base64.

    Raises:
        DsoptError: Accelerate's own configuration cannot be read, or has DeepSpeed's settings in it.
    """
    given = command.config
    return command.launcher.given_config(command.options, cwd, where) if given is None else given


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
    given = _named(command, cwd, where)
    if given is None:
        raise DsoptError(
            f"{where}: no DeepSpeed configuration. The command has neither '--deepspeed_config FILE' nor "
            f"'--deepspeed FILE', and the study has no 'ds_config'. {_missing_hint(command)}"
        )
    path = cwd / given
    text = None if is_file(path) else decoded(given)
    if text is not None:
        place = f"{where}: the configuration in base64"
        config, warnings = parse_config(text, place)
        return config, place, warnings
    config, warnings = read_config(path)
    return config, str(path), warnings


def _missing_hint(command: LaunchCommand) -> str:
    """What to do about a missing configuration: Python's argparse takes any beginning of a flag, dsopt does not.

    Or it is misspelt.
    """
    flags = (arg.partition("=")[0] for arg in command.script_args)
    meant = next(
        (flag for flag in flags if flag not in CONFIG_FLAGS and nearest(flag, CONFIG_FLAGS, cutoff=0.85)), None
    )
    return "Give one of them." if meant is None else f"Write {meant} as {CONFIG_FLAGS[0]}."
