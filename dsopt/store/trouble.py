"""What an exception from the database means: whether it will be there again, its own words, and what to do."""

from typing import Final

import sqlalchemy as sa

_DATABASE: Final = "dsopt_database"  # an attribute of exceptions
_MISSING_RIGHTS: Final = "The role may not do this; docs/operations.md lists what each role needs"
_CONNECTIONS: Final = (
    "End some of its clients, or allow more (max_connections, CONNECTION LIMIT): each worker has up to four"
)
_FULL_DISK: Final = "Free some space on the disk that the database is on, and try again"
_READONLY: Final = "attempt to write a readonly database"
_UNWRITABLE: Final = "Check that the file and its folder are there, and that you may write to both"
ONLY_READS: Final = "25006"  # a standby, or a transaction that only reads, was to write or listen
# by PostgreSQL's code for an error, or words of the message if it has none
_ADVICE: Final = {
    "42501": _MISSING_RIGHTS,
    ONLY_READS: "Only the primary server takes writes, and only from a role that may write (docs/operations.md)",
    "53100": _FULL_DISK,
    "53300": _CONNECTIONS,
    "too many connections": _CONNECTIONS,  # psycopg gives no code if it could not connect
    "too many clients already": _CONNECTIONS,
    "remaining connection slots are reserved": _CONNECTIONS,
    "database or disk is full": _FULL_DISK,
    "unable to open database file": _UNWRITABLE,
    _READONLY: _UNWRITABLE,
    "no such table": "Another file is in the place of the database; put it back, or restore it (dsopt db restore)",
    "database disk image is malformed": "Restore it from a backup (dsopt db restore)",
}

# SQLite's words for text, and for a file, that somebody altered
_FOR_GOOD: Final = ("Could not decode", "no such table")


def is_away(error: BaseException | None) -> bool:
    """Whether an exception says that the database cannot be used now, though it may be soon.

    A restart, a dropped connection, a lock that is not given, a full disk, a server that only reads are such reasons.
    """
    while error is not None:
        if isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.TimeoutError):
            return not any(words in str(error) for words in _FOR_GOOD)
        if isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated:
            return True
        if isinstance(error, sa.exc.InternalError) and getattr(error.orig, "sqlstate", None) == ONLY_READS:
            return True  # a standby that has just taken over
        error = error.__cause__ or error.__context__
    return False


def takes_no_writes(error: BaseException) -> bool:
    """Whether an exception says that this client may only read here: no waiting helps one that never could write."""
    found = _of_database(error)
    return found is not None and (getattr(found.orig, "sqlstate", None) == ONLY_READS or _READONLY in str(found.orig))


def note_database(error: BaseException, shown: str) -> None:
    """Notes on an exception which database it comes from, as it may be printed."""
    setattr(error, _DATABASE, shown)


def database_error(error: BaseException | None) -> str | None:
    """The database's own words if an exception comes from it, and what to do if that is known."""
    found = _of_database(error)
    if found is None:
        return None
    words = " ".join(str(found.orig).split())
    code = getattr(found.orig, "sqlstate", None)
    advice = next((advice for known, advice in _ADVICE.items() if (known == code if code else known in words)), None)
    return f"{words}. {advice}" if advice else words


def database_of(error: BaseException | None) -> str:
    """The database that an exception comes from, as it may be printed."""
    return str(getattr(_of_database(error), _DATABASE, "the database"))


def _of_database(error: BaseException | None) -> sa.exc.DBAPIError | None:
    while error is not None and not isinstance(error, sa.exc.DBAPIError):
        # what a session says that met a lost connection before, and could not roll back
        lost = error.__context__ if isinstance(error, sa.exc.PendingRollbackError) else None
        error = error.__cause__ or lost
    return error
