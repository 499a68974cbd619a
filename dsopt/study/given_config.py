"""Where a command's DeepSpeed configuration stands: in the study, in a file, in the command itself, with Accelerate."""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsopt.errors import DsoptError
from dsopt.study.command import LaunchCommand
from dsopt.study.documents import parse_json, read_json, read_yaml

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


def find_config(
    content: Mapping[str, Any], command: LaunchCommand, cwd: Path, where: str
) -> tuple[dict[str, Any], str]:
    """DeepSpeed's configuration and where it came from.

    It is `ds_config` of the study, or what the command names: a file, JSON text in base64, or the file in Accelerate's
    own configuration.

    Raises:
        DsoptError: there is none, or it cannot be read.
    """
    inline = content.get("ds_config")
    if inline is not None:
        if not isinstance(inline, dict):
            raise DsoptError(f"{where}: ds_config: {inline!r}. Expected DeepSpeed's configuration as a mapping.")
        return dict(inline), f"{where}: ds_config"
    given = command.config
    if given is None and command.launcher.kind == "accelerate":
        given = _from_accelerate(command, cwd, where)
    if given is None:
        raise DsoptError(
            f"{where}: no DeepSpeed configuration: the command has neither '--deepspeed_config FILE' nor "
            "'--deepspeed FILE', and the study has no 'ds_config'. Give one of them."
        )
    path = cwd / given
    if not _is_file(path):
        decoded = _decoded(given)
        if decoded is not None:
            place = f"{where}: the configuration given as base64"
            return parse_json(decoded, place), place
    return read_json(path), str(path)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # base64 of a whole configuration is too long for a file's name
        return False


def _decoded(text: str) -> str | None:
    """The text that is given in (URL-safe) base64, if it is and holds an object; DeepSpeed takes it like that."""
    try:
        decoded = base64.urlsafe_b64decode(text.encode("ascii")).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return decoded if decoded.lstrip().startswith("{") else None


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
