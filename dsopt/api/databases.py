"""The database's schema, and the dashboard on it."""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from dsopt.api.storage import chosen_storage, opened
from dsopt.errors import DsoptError
from dsopt.store import engine, revision
from dsopt.store.url import exists, shown, storage_url
from dsopt.web.access import checked_token
from dsopt.web.server import DashboardServer


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """The revision of a database.

    Attributes:
        storage: its URL, without the password.
        revision: of dsopt's schema; None if it has none.
        head: the revision that this version of dsopt needs.
        before: the revision before the upgrade, if it was upgraded just now.
    """

    storage: str
    revision: str | None
    head: str
    before: str | None = None

    @property
    def is_current(self) -> bool:
        """Whether this version of dsopt can work on it."""
        return self.revision == self.head


def upgrade_database(*, storage: str | None = None) -> DatabaseState:
    """Creates or upgrades Optuna's and dsopt's tables. Any number of processes may do so at once.

    Raises:
        DsoptError: the database cannot be reached, or a newer version made it.
    """
    from dsopt.store import schema  # Alembic takes long to import

    connection = engine.connect(storage_url(chosen_storage(storage)))
    try:
        before = revision.state(connection).revision
        after = schema.upgrade(connection)
        where = shown(connection.url)
    finally:
        connection.dispose()
    return DatabaseState(storage=where, revision=after.revision, head=after.head, before=before)


def database_state(*, storage: str | None = None) -> DatabaseState:
    """The revision of the database.

    Raises:
        DsoptError: there is none, or it cannot be reached.
    """
    url = storage_url(chosen_storage(storage))
    if not exists(url):
        raise DsoptError(f"--storage: {shown(url)}: no such file. Create it with: dsopt db upgrade")
    connection = engine.connect(url)
    try:
        found = revision.state(connection)
        return DatabaseState(storage=shown(connection.url), revision=found.revision, head=found.head)
    finally:
        connection.dispose()


def check_database(*, storage: str | None = None) -> None:
    """Checks that the database fits this version of dsopt.

    Raises:
        DsoptError: it does not; the message says what to do.
    """
    connection = engine.connect(storage_url(chosen_storage(storage)))
    try:
        revision.check(connection)
    finally:
        connection.dispose()


@contextlib.contextmanager
def dashboard_server(
    host: str, port: int, *, token: str | None = None, root: str = "", storage: str | None = None
) -> Iterator[DashboardServer]:
    """The pages of the storage, read-only, until the block ends; `serve_forever` serves them, at `url`.

    Args:
        host: a name or address of this machine. On loopback, the server answers to localhost alone.
        port: 0 picks a free one.
        token: what a reader has to show. None: on loopback none, and a new one elsewhere.
        root: the path under which a reverse proxy shows it, such as `/dsopt`.
        storage: URL of the database; by default as for `load_study`.

    Raises:
        DsoptError: the storage cannot be used, the token cannot be one, or the server cannot listen there.
    """
    if token is not None:
        checked_token(token, "--token")
    with opened(storage) as store:
        try:
            server = DashboardServer(store, host, port, token, root=root.rstrip("/"))
        except OSError as error:
            advice = "" if isinstance(error, socket.gaierror) else f" Try another: --port {port + 1}"
            raise DsoptError(f"--host {host} --port {port}: cannot listen there: {error.strerror}.{advice}") from None
        with server:
            yield server
