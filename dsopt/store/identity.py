"""What identifies a database, however a worker reaches it."""

from typing import Final

import sqlalchemy as sa

from dsopt.store.database_file import opened_file

_SYSTEM: Final = "SELECT system_identifier || '/' || current_database() FROM pg_control_system()"
_IDENTITY: Final = "dsopt_identity"  # in what the pool notes of a connection


def identity_of(engine: sa.Engine) -> str:
    """The same for all workers of one machine that use one database, and for no others.

    Another database may be in the place of the former, as after a restore: this is the one that is there now. A server
    is asked once for each of its connections.
    """
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            device, inode = opened_file(connection)
            return f"sqlite {device} {inode}"
        if _IDENTITY not in connection.info:
            connection.info[_IDENTITY] = _of_server(connection)
        return str(connection.info[_IDENTITY])


def _of_server(connection: sa.Connection) -> str:
    try:
        return f"postgresql {connection.execute(sa.text(_SYSTEM)).scalar_one()}"
    except sa.exc.ProgrammingError:  # the function is kept from this role, or is not there
        url = connection.engine.url
        return f"postgresql {url.host}:{url.port}/{url.database}"
