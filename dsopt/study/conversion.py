"""From an existing DeepSpeed autotuning setup to a study file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsopt.errors import DsoptError
from dsopt.study.command import LaunchCommand
from dsopt.study.documents import parse_json, read_text, yaml_text
from dsopt.study.ds_keys import TOP_LEVEL, ZERO
from dsopt.study.load import build_spec
from dsopt.study.spec import Autotuning
from dsopt.study.typed import typed_words

_MOST_MISSING_BRACES = 2


def study_from_autotuning(
    path: Path, command: Sequence[str], *, cwd: Path, name: str | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The content of a study file for DeepSpeed's configuration in `path` and the launch command it is used with.

    The configuration may be as documents show it: comments, trailing commas, without outer braces, and with closing
    braces forgotten at its end, which is warned about.

    Returns:
        What a study file says (with the mappings of Trainer flags that were found), and warnings.

    Raises:
        DsoptError: as `build_spec`.
    """
    where = str(path)
    config, warnings = _parse_document(read_text(path, "DeepSpeed configuration (JSON)"), where)
    warnings += _put_in_place(config, where)
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
    spec, more = build_spec(given, where)
    content = spec.model_dump(mode="json", exclude_unset=True)
    content["command"] = [*(f"{k}={v}" for k, v in spec.launch.environment), *spec.launch.argv()]
    order = ("name", "command", "cwd", "autotuning", "ds_config")
    return {key: content[key] for key in order if key in content}, warnings + more


def study_text(content: dict[str, Any], source: Path) -> str:
    """A study file's text."""
    body = yaml_text(content)
    return f"# Made from {source.name}, a DeepSpeed configuration.\n{body}"


def _put_in_place(config: dict[str, Any], where: str) -> list[str]:
    """Moves keys to the section that DeepSpeed reads them in; documents show some without it, or in another."""
    warnings = []

    def move(key: str, source: dict[str, Any], section: str | None) -> None:
        target = config if section is None else config.setdefault(section, {})
        if isinstance(target, dict) and key not in target:
            target[key] = source.pop(key)
            warnings.append(f"{where}: '{key}' is moved to {section or 'the top level'}, where DeepSpeed reads it")

    for key in [key for key in config if key in ZERO and key not in TOP_LEVEL]:
        move(key, config, "zero_optimization")
    for key in [key for key in config if key in Autotuning.model_fields and key not in TOP_LEVEL]:
        move(key, config, "autotuning")
    zero = config.get("zero_optimization")
    if isinstance(zero, dict):
        for key in [key for key in zero if key in TOP_LEVEL and key not in ZERO]:
            move(key, zero, None)
    return warnings


def _parse_document(text: str, where: str) -> tuple[dict[str, Any], list[str]]:
    try:
        return parse_json(text, where), []
    except DsoptError as error:
        for missing in range(1, _MOST_MISSING_BRACES + 1):
            try:
                config = parse_json(text.rstrip() + "\n" + "}" * missing, where)
            except DsoptError:
                continue
            return config, [f"{where}: {missing} closing brace is missing at the end; it is taken as if it were there"]
        raise error from None
