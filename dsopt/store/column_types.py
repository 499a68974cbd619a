"""Types of the columns of dsopt's own tables: what is read has its type, whoever wrote it.

SQLite keeps any value in any column, and either database keeps times that no calendar has.
"""

import math
from typing import Any, Final

from sqlalchemy import Float, Integer, String, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from dsopt.errors import DsoptError

_YEAR_9000: Final = 221_845_392_000.0


class _Checked(TypeDecorator[Any]):
    """A type that refuses what dsopt cannot have written."""

    expected: str

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ANN401, ARG002 - as SQLAlchemy has it
        if value is not None and not self.is_valid(value):
            raise DsoptError(
                f"the database has {_shown(value)} in dsopt's own tables, where it keeps {self.expected}: somebody or "
                "something has changed it. Restore it from a backup (dsopt db restore)."
            )
        return value

    def is_valid(self, value: object) -> bool:
        raise NotImplementedError


class ShortText(_Checked):
    """Text of at most so many characters."""

    cache_ok = True
    impl = String
    expected = "text"

    def is_valid(self, value: object) -> bool:
        return isinstance(value, str)


class LongText(ShortText):
    """Text of any length."""

    cache_ok = True
    impl = Text


class WholeNumber(_Checked):
    """A whole number."""

    cache_ok = True
    impl = Integer
    expected = "a whole number"

    def is_valid(self, value: object) -> bool:
        return isinstance(value, int)


class Number(_Checked):
    """A finite number."""

    cache_ok = True
    impl = Float
    expected = "a number"

    def is_valid(self, value: object) -> bool:
        return isinstance(value, int | float) and math.isfinite(value)


class Time(Number):
    """A moment in seconds since the epoch."""

    cache_ok = True
    expected = "a time"

    def is_valid(self, value: object) -> bool:
        return isinstance(value, int | float) and 0 <= value < _YEAR_9000


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
