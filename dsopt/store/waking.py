"""Tells a worker that the database has changed, so that it need not ask."""

import threading
from collections.abc import Callable
from typing import Any, Final, cast

import sqlalchemy as sa

from dsopt.store.database_file import is_replaced
from dsopt.store.trouble import is_away

_LISTEN_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = (0.05, 0.5)  # SQLite: the shortest and the longest pause between two looks


class Waker:
    """A thread that calls `wake` after every change by anybody: LISTEN in PostgreSQL, a look at SQLite's version.

    A look reads one number and begins no transaction. While the database is away, it calls nothing.
    """

    def __init__(self, engine: sa.Engine, wake: Callable[[], None]) -> None:
        self._engine = engine
        self._wake = wake
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="dsopt-waker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread soon; does not wait for a database that does not answer."""
        self._closing.set()
        self._thread.join(timeout=2 * _LISTEN_SECONDS)

    def _work(self) -> None:
        watch = self._listen if self._engine.dialect.name == "postgresql" else self._look
        while not self._closing.is_set():
            try:
                watch()
            except Exception as error:
                # what will not be there again is told by whoever asks for something
                is_of_database = is_away(error) or isinstance(error, sa.exc.DBAPIError)
                if not is_of_database and type(error).__module__.partition(".")[0] != "psycopg":
                    raise
                self._closing.wait(_LISTEN_SECONDS)

    def _listen(self) -> None:
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("LISTEN dsopt")
            self._wake()  # what happened before is not told
            driver = cast(Any, connection.connection.driver_connection)
            try:
                while not self._closing.is_set():
                    for _ in driver.notifies(timeout=_LISTEN_SECONDS, stop_after=1):
                        self._wake()
            finally:
                connection.invalidate()  # nobody else shall get one that listens

    def _look(self) -> None:
        shortest, longest = _LOOK_SECONDS
        pause, known = shortest, None
        with self._engine.connect() as connection:
            while not self._closing.wait(pause):
                if is_replaced(str(self._engine.url.database), connection.info):
                    return  # to look at the one that is there now
                version = connection.exec_driver_sql("PRAGMA data_version").scalar_one()
                if version != known:
                    known, pause = version, shortest
                    self._wake()
                else:
                    pause = min(longest, 1.2 * pause)
