"""Corrects a DeepSpeed configuration as it is read, and warns about it: missing braces, keys in the wrong section."""

from collections.abc import Mapping
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.study.autotuning import Autotuning
from dsopt.study.documents import parse_json
from dsopt.study.ds_schema import Schema

_MOST_MISSING_BRACES: Final = 2
_ZERO: Final = "zero_optimization"


def parse_config(text: str, where: str) -> tuple[dict[str, Any], list[str]]:
    """Reads a configuration as documents show it: with comments or trailing commas, without outer braces, or without
    the last ones.

    Returns:
        The configuration, and warnings about what dsopt corrected.

    Raises:
        DsoptError: as `parse_json`.
    """
    try:
        return parse_json(text, where), []
    except DsoptError as error:
        for missing in range(1, _MOST_MISSING_BRACES + 1):
            try:
                config = parse_json(text.rstrip() + "\n" + "}" * missing, where)
            except DsoptError:
                continue
            braces = "closing brace is" if missing == 1 else "closing braces are"
            return config, [f"{where}: {missing} {braces} missing at the end; dsopt reads it as if complete"]
        raise error from None


def put_in_place(config: dict[str, Any], where: str, schema: Schema | None) -> list[str]:
    """Moves keys to the section that DeepSpeed reads them in; documents show some outside it, or in another one.

    Args:
        config: the configuration, which this changes.
        where: the file or place it is in, for messages.
        schema: what DeepSpeed reads, or None if that is unknown; then this moves only dsopt's own keys.

    Returns:
        A warning for each key that it moved.

    Raises:
        DsoptError: a key is in both places, with different values.
    """
    warnings = []

    def move(key: str, source: dict[str, Any], section: str | None) -> None:
        target = config if section is None else config.setdefault(section, {})
        if not isinstance(target, dict):
            return
        if target.get(key, source[key]) != source[key]:
            inner = section or _ZERO
            raise DsoptError(f"{where}: '{key}' is in '{inner}' and outside it, and they differ. Keep one of them.")
        target[key] = source.pop(key)
        warnings.append(f"{where}: dsopt moves '{key}' to {section or 'the top level'}, where DeepSpeed reads it")

    top = schema.root.keys if schema is not None else {}
    section = schema.section(_ZERO) if schema is not None else None
    in_zero: Mapping[str, object] = section.keys if section is not None else {}
    for key in [key for key in config if key in in_zero and key not in top]:
        move(key, config, _ZERO)
    for key in [key for key in config if key in Autotuning.model_fields and key not in top]:
        move(key, config, "autotuning")
    zero = config.get(_ZERO)
    if isinstance(zero, dict):
        for key in [key for key in zero if key in top and key not in in_zero]:
            move(key, zero, None)
    return warnings
