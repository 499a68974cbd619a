"""Reads YAML and JSON files, and reports duplicate keys and syntax errors with line and column."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dsopt.errors import DsoptError


def read_text(path: Path, what: str) -> str:
    """The text of a file that the user named. `what` is what messages call it, such as "study file"."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DsoptError(f"{path}: no such file. Expected the {what}; check the path.") from None
    except IsADirectoryError:
        raise DsoptError(f"{path}: is a folder. Expected the {what}, a file.") from None
    except UnicodeDecodeError as error:
        raise DsoptError(f"{path}: is not UTF-8 text (byte {error.start}). Expected the {what}.") from None
    except (OSError, ValueError) as error:
        raise DsoptError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def read_yaml(path: Path, what: str = "study file (YAML)") -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        DsoptError: no such file, invalid YAML (with line and column), a duplicate key, or not a mapping.
    """
    text = read_text(path, what)
    try:
        document = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader that also refuses duplicate keys
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise DsoptError(f"{path}: {where}{error.problem or 'invalid YAML'}. Correct the file.") from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        # PyYAML lets a value such as 2026-13-45, which looks like a date, fail as Python's own
        raise DsoptError(f"{path}: invalid YAML: {' '.join(str(error).split())}. Correct the file.") from None
    if not isinstance(document, dict):
        raise DsoptError(f"{path}: contains {_kind(document)}. Expected a mapping with keys such as 'name', 'command'.")
    return document


def read_json(path: Path, what: str = "DeepSpeed configuration (JSON)") -> dict[str, Any]:
    """The object in a JSON file, which may have comments and trailing commas. `what` is what messages call it.

    Raises:
        DsoptError: no such file, invalid JSON (with line and column), a duplicate key, or not an object.
    """
    return parse_json(read_text(path, what), str(path))


def parse_json(text: str, where: str) -> dict[str, Any]:
    """The object in JSON text. As DeepSpeed's own reader (Hjson), it accepts comments, trailing commas and text without
    outer braces. It refuses a missing comma, which that reader would silently misread.

    Raises:
        DsoptError: other invalid JSON, with line and column; a duplicate key; not an object.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise DsoptError(f"{where}: key '{key}' appears twice in one object. Keep one of them.")
            found[key] = value
        return found

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a JSON number")

    try:
        document = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except json.JSONDecodeError as error:
        document = _relaxed(text, unique)
        if document is None:
            place = f"line {error.lineno}, column {error.colno}"
            hint = " The quotes are typographic; type plain ones." if "“" in text or "”" in text else ""
            raise DsoptError(f"{where}: {place}: invalid JSON: {error.msg}. Correct it.{hint}") from None
    except (ValueError, RecursionError) as error:
        raise DsoptError(f"{where}: invalid JSON: {error}. Correct it.") from None
    if not isinstance(document, dict):
        raise DsoptError(f"{where}: contains {_kind(document)}. Expected a JSON object.")
    return document


def _relaxed(text: str, pairs_hook: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> object | None:
    """The document as DeepSpeed's reader sees it; None if it sees none, or not the one that a person sees."""
    import hjson

    if not text.strip():
        return None
    try:
        document = hjson.loads(text, object_pairs_hook=pairs_hook)
    except (hjson.HjsonDecodeError, ValueError, RecursionError):
        return None
    # Hjson reads unquoted text to the end of the line, including whatever follows a forgotten comma
    return document if all(f'"{value}"' in text for value in _strings(document)) else None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def nearest(word: str, known: Iterable[str], cutoff: float = 0.75) -> str | None:
    """The known word that `word` is most likely a misspelling of, if there is one."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return matches[0] if matches else None


class _UniqueKeyLoader(yaml.SafeLoader):
    """PyYAML silently keeps the last of two equal keys; this loader refuses them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key '{key}' appears twice in one mapping", key_node.start_mark
                )
            seen.add(key if isinstance(key, str) else repr(key))
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Writes what the loader reads back as it was: text that looks like a number to it is quoted."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's interface
        return True


# PyYAML follows YAML 1.1, where 5e8 is text; people who write DeepSpeed configurations mean the number.
for _style in (_UniqueKeyLoader, _Dumper):
    _style.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def yaml_text(content: Mapping[str, Any]) -> str:
    """Content as YAML that `read_yaml` reads back as it was."""
    return str(yaml.dump(dict(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def _kind(value: object) -> str:
    return {type(None): "nothing", list: "a list", str: "text", dict: "a mapping"}.get(type(value), "a single value")
