"""What one check found."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from typing_extensions import ParamSpec

from dsopt.errors import DsoptError

_P = ParamSpec("_P")
Status: TypeAlias = Literal["ok", "warning", "problem", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What one check found. A check that found several things gives one of these for each.

    Attributes:
        name: the check's, such as `all-reduce`; it stays the same from version to version.
        status: a problem stops a study or its runs; a warning does not, but costs something.
        message: what it found, in one line.
        fix: the command or edit that helps; empty if there is nothing to do, or if the message says it.
    """

    name: str
    status: Status
    message: str
    fix: str = ""


def ok(name: str, message: str) -> Check:
    """All is well."""
    return Check(name=name, status="ok", message=_line(message))


def warning(name: str, message: str, fix: str = "") -> Check:
    """It works, but costs something."""
    return Check(name=name, status="warning", message=_line(message), fix=_line(fix))


def problem(name: str, message: str, fix: str = "") -> Check:
    """It does not work."""
    return Check(name=name, status="problem", message=_line(message), fix=_line(fix))


def skipped(name: str, message: str) -> Check:
    """Nothing was checked."""
    return Check(name=name, status="skipped", message=_line(message))


def guarded(name: str, check: Callable[_P, Iterable[Check]], *args: _P.args, **kwargs: _P.kwargs) -> Iterator[Check]:
    """What a check finds; what it raises is a problem of that name, in the exception's words."""
    try:
        yield from check(*args, **kwargs)
    except DsoptError as error:
        yield problem(name, str(error))
    except Exception as error:  # a check that fails must not hide what the others find
        yield problem(name, f"the check itself failed: {type(error).__name__}: {error}")


def _line(text: str) -> str:
    return " ".join(text.split())
