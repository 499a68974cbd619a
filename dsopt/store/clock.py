"""The database's clock, and what tells that a backup was restored, as expressions of its SQL."""

import sqlalchemy as sa

from dsopt.store.tables import studies


def now(connection: sa.Connection) -> sa.ColumnElement[float]:
    """The database's clock as an expression: seconds since the epoch."""
    if connection.dialect.name == "sqlite":
        return sa.literal_column("(julianday('now') - 2440587.5) * 86400.0", sa.Float)
    return sa.literal_column("extract(epoch FROM clock_timestamp())", sa.Float)


def since(connection: sa.Connection, moment: sa.ColumnElement[float]) -> sa.ColumnElement[float]:
    """How long ago a moment was, in seconds by the database's clock; 0 if somebody has set that back since."""
    return sa.type_coerce(not_before(connection, moment) - moment, sa.Float)


def incarnation(connection: sa.Connection) -> sa.ColumnElement[int]:
    """What changes when a backup is restored, as an expression: an earlier database may look like a later one.

    PostgreSQL's program makes the tables anew; a server that goes on from earlier files, or takes over for another one,
    was started later. dsopt itself gives a restored file of SQLite another number.
    """
    if connection.dialect.name == "sqlite":
        return sa.literal_column("(SELECT user_version FROM pragma_user_version)", sa.Integer).label("incarnation")
    table = f"'{studies.name}'::regclass::oid::bigint"
    began = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
    return sa.literal_column(f"(SELECT {table} # {began})", sa.BigInteger).label("incarnation")


def not_before(connection: sa.Connection, earliest: sa.ColumnElement[float]) -> sa.ColumnElement[float]:
    """The database's clock as an expression, or what it has shown earlier, if somebody has set it back since."""
    later = sa.func.max if connection.dialect.name == "sqlite" else sa.func.greatest
    return later(now(connection), earliest)
