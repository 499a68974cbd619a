"""Turns a study's document into a StudySpec, and pydantic's errors into sentences."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dsopt.study.autotuning import Autotuning
from dsopt.study.documents import nearest
from dsopt.study.known_keys import SECTIONS
from dsopt.study.mistakes import Mistakes
from dsopt.study.spec import StudySpec

# keys that pydantic checks together with others
_TOGETHER: Final = ("name", "stop_when", "training_hours", "warm_start", "compare")
_ANY_NAME: Final = "study"
_WHOLE: Final = ("simulation",)  # sections that mean nothing if one of their keys is missing


def validated(document: Mapping[str, Any], where: str, mistakes: Mistakes) -> StudySpec:
    """The spec of a document. Invalid values are mistakes, and the spec is without them.

    Raises:
        DsoptError: the document gives no spec even without them.
    """
    try:
        return StudySpec.model_validate(document)
    except ValidationError as error:
        faulty = _add_all(error, where, mistakes)
    sound = _without(document, faulty)
    if ("name",) in faulty and "name" in document:
        sound["name"] = _ANY_NAME
    try:
        return StudySpec.model_validate(sound)
    except ValidationError as error:
        # a study without some of its values may contradict itself although the whole does not
        if not mistakes.is_doubtful(*_TOGETHER):
            _add_all(error, where, mistakes)
        mistakes.end_if_any()
        raise


def valid_autotuning(section: Mapping[str, Any], where: str, mistakes: Mistakes) -> dict[str, Any]:
    """An `autotuning` section without its invalid values. It is checked separately, so that messages name the file that
    it is in."""
    try:
        Autotuning.model_validate(section)
    except ValidationError as error:
        faulty = _add_all(error, where, mistakes, above=("autotuning",))
        content = _without({"autotuning": section}, faulty)
        return dict(content.get("autotuning", {}))
    return dict(section)


def _add_all(
    error: ValidationError, where: str, mistakes: Mistakes, above: tuple[str, ...] = ()
) -> set[tuple[str, ...]]:
    """Adds pydantic's errors to the mistakes.

    Returns:
        The paths of the faulty keys: of a key in a section, or of a key at the top level.
    """
    faulty = set()
    for details in error.errors():
        path = tuple(str(part) for part in (*above, *details["loc"]))
        depth = 2 if path and path[0] in SECTIONS and path[0] not in _WHOLE else 1
        key = ".".join(path[:depth])
        faulty.add(path[:depth])
        if details["type"] != "missing" or not mistakes.is_doubtful(".".join(path)):  # or is it there, misspelled?
            mistakes.add(_explain({**details, "loc": path}, where), *([key] if key else []))
    return faulty


def _without(document: Mapping[str, Any], faulty: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    result = dict(document)
    for path in faulty:
        if len(path) == 1:
            result.pop(path[0], None)
        elif len(path) == 2 and isinstance(result.get(path[0]), Mapping):
            result[path[0]] = {key: value for key, value in result[path[0]].items() if key != path[1]}
    return result


def _explain(error: ErrorDetails, where: str) -> str:
    """One of pydantic's errors as a sentence with key, value and what was expected."""
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
    if kind == "string_type" and isinstance(value, date | int | float):
        return f"{where}: {key}: {value} is no text in YAML. Put it in quotes."
    message = error["msg"].removeprefix("Value error, ")
    if not location:  # of several keys together: the message names them
        return f"{where}: {message}."
    if message.split(maxsplit=1)[0].isalpha():  # a sentence, not a key
        message = message[0].upper() + message[1:]
    return f"{where}: {key}: {value!r}. {message}."
