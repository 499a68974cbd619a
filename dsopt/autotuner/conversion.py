"""Makes a study file from an existing DeepSpeed autotuning setup."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsopt.errors import DsoptError
from dsopt.study.command import LaunchCommand
from dsopt.study.documents import yaml_text
from dsopt.study.given_config import read_config
from dsopt.study.load import build_spec
from dsopt.study.typed import typed_words


def study_from_autotuning(
    path: Path, command: Sequence[str], *, cwd: Path, name: str | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The content of a study file for the DeepSpeed configuration in `path` and the launch command that uses it.

    Returns:
        The content (with the mappings of Trainer flags that it found), and warnings.

    Raises:
        DsoptError: as `build_spec`.
    """
    where = str(path)
    config, warnings = read_config(path)
    parsed = LaunchCommand.parse(typed_words(command, "command line"), "command line")
    given = {
        "name": name or parsed.study_name,
        "command": list(command),
        "cwd": str(cwd),
        "ds_config": config,
    }
    named = parsed.config
    if named is not None and (cwd / named).is_file() and not (cwd / named).samefile(path):
        raise DsoptError(f"command line: the command reads {named}, not {path}. Give the same file in both places.")
    spec, more = build_spec(given, where, where)
    content = spec.model_dump(mode="json", exclude_unset=True)
    content["command"] = [*(f"{k}={v}" for k, v in spec.launch.environment), *spec.launch.argv()]
    order = ("name", "command", "cwd", "autotuning", "ds_config")
    return {key: content[key] for key in order if key in content}, warnings + more


def study_text(content: dict[str, Any], source: Path) -> str:
    """A study file's text."""
    body = yaml_text(content)
    return f"# Made from {source.name}, a DeepSpeed configuration.\n{body}"
