"""Asks the database what a command must know, however long it is away."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from dsopt.cli.prose import say

_T = TypeVar("_T")
_LOOK_SECONDS: Final = 1.0


def patiently(ask: Callable[[], _T], on_away: Callable[[], object] = lambda: None) -> _T:
    """The answer of a database, as soon as it gives one; says once that it waits. `on_away`: told if it is away."""
    from dsopt.api.storage import database_error, is_away

    is_told = False
    while True:
        try:
            return ask()
        except Exception as error:
            if not is_away(error):
                raise
            if not is_told:
                say(f"Waiting: {database_error(error) or error}", err=True)
            is_told = True
            on_away()
            time.sleep(_LOOK_SECONDS)
