"""Reads YAML and JSON files, and reports duplicate keys and syntax errors with line and column."""

import difflib
import json
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from dsopt.errors import DsoptError

_LARGEST_BYTES: Final = 2**20  # reading takes seconds then, and nobody writes that much
_LARGEST_YAML_BYTES: Final = 2**18
_MOST_VALUES: Final = 50_000  # aliases counted wherever they are used
_DEEPEST: Final = 50


def read_text(path: Path, what: str, largest_bytes: int = _LARGEST_BYTES) -> str:
    """The text of a file that the user named. `what` is what messages call it, such as "study file"."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise DsoptError(f"{path}: is a pipe or a device. Expected the {what}, a file.")
        with path.open("rb") as file:
            content = file.read(largest_bytes + 1)
        if len(content) > largest_bytes:
            raise DsoptError(f"{path}: has more than {largest_bytes // 1024} KiB. Expected the {what}.")
        return content.decode("utf-8").replace("\r\n", "\n")
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
    text = read_text(path, what, _LARGEST_YAML_BYTES)
    try:
        document = _document(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise DsoptError(f"{path}: {where}{error.problem or 'invalid YAML'}. Correct the file.") from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        # PyYAML lets a value such as 2026-13-45, which looks like a date, fail as Python's own
        raise DsoptError(f"{path}: invalid YAML: {' '.join(str(error).split())}. Correct the file.") from None
    if not isinstance(document, dict):
        raise DsoptError(f"{path}: contains {_kind(document)}. Expected a mapping with keys such as 'name', 'command'.")
    check_text(document, str(path))
    return document


def _document(text: str) -> object:
    """The document in YAML text. An alias costs nothing here, but would wherever the document is copied or written.

    Raises:
        ValueError: it is too large or too deep with its aliases written out.
        yaml.YAMLError: it is not valid.
    """
    loader = _UniqueKeyLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _count_values(node, {}, 1)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _count_values(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """How many values a node is with its aliases written out."""
    if depth > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep, or holds itself")
    if id(node) not in known:
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            inner = node.value
        elif isinstance(node, yaml.MappingNode):
            inner = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_count_values(part, known, depth + 1) for part in inner)
        if known[id(node)] > _MOST_VALUES:
            raise ValueError(f"it has more than {_MOST_VALUES} values once its aliases (*name) are written out")
    return known[id(node)]


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
    if is_deeper(document, _DEEPEST):
        raise DsoptError(f"{where}: is nested more than {_DEEPEST} levels deep. Expected a JSON object.")
    check_text(document, where)
    return document


def check_text(value: object, where: str) -> None:
    """Refuses text that no command, file or database can hold, wherever it is in a value.

    Raises:
        DsoptError: a text has a NUL byte, or half of a character, such as from bytes that are not UTF-8.
    """
    for text in _strings(value):
        if "\0" in text or not _is_utf8(text):
            raise DsoptError(f"{where}: {text!r} has a NUL byte or is not UTF-8 text. Correct it.")


def _is_utf8(text: str) -> bool:
    """Whether this text can be written as UTF-8; not if it has half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_deeper(value: object, levels: int) -> bool:
    """Whether objects and lists are nested deeper than this."""
    layer = [value]
    for _ in range(levels):
        layer = [inner for outer in layer for inner in _parts(outer)]
    return bool(layer)


def _parts(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def is_file(path: Path) -> bool:
    """Whether there is a file at this path; not if no file could have it."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long
        return False


def is_folder(path: Path) -> bool:
    """Whether there is a folder at this path; not if no folder could have it."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _relaxed(text: str, pairs_hook: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> object | None:
    """The document as DeepSpeed's reader sees it; None if it sees none, or not the one that a person sees."""
    import hjson

    if not text.strip():
        return None
    try:
        document = hjson.loads(text, object_pairs_hook=pairs_hook)
        # Hjson reads unquoted text to the end of the line, including whatever follows a forgotten comma
        return document if all(f'"{value}"' in text for value in _strings(document)) else None
    except (hjson.HjsonDecodeError, ValueError, RecursionError):
        return None


def _strings(value: object) -> Iterator[str]:
    """The texts in a document, however deep it is, also in one that contains itself."""
    left, seen = [value], set()
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict | list) and id(one) not in seen:
            seen.add(id(one))
            left += [*map(str, one), *one.values()] if isinstance(one, dict) else one


def nearest(word: str, known: Iterable[str], cutoff: float = 0.75) -> str | None:
    """The known word that `word` is most likely a misspelling of, if there is one."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return matches[0] if matches else None


_NO_KEYS: Final = {
    "tag:yaml.org,2002:merge": "'<<' (a merge key) is not supported; write its keys out",
    "tag:yaml.org,2002:value": "'=' is no key",
}


class _UniqueKeyLoader(yaml.SafeLoader):
    """PyYAML silently keeps the last of two equal keys; this loader refuses them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag in _NO_KEYS:
                raise yaml.constructor.ConstructorError(None, None, _NO_KEYS[key_node.tag], key_node.start_mark)
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
