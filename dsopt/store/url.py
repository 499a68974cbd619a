"""The storage's URL: what a person names, and how it is shown."""

import os
import re
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url

from dsopt.errors import DsoptError
from dsopt.study.documents import check_text

# as PostgreSQL's own programs take the servers of a cluster
_SERVERS: Final = re.compile(
    r"(?P<before>postgres[a-z+]*://[^@/?]*@)(?P<servers>[\w.-]+(?::\d+)?(?:,[\w.-]+(?::\d+)?)+)(?P<after>[/?].*)?",
    re.ASCII,
)


def storage_url(text: str) -> URL:
    """The storage a person names, as SQLAlchemy's URL. A PostgreSQL URL without a driver gets psycopg.

    Raises:
        DsoptError: it is not a URL, or names a database that dsopt does not support.
    """
    try:
        text.encode()
        url = _parsed(text)
    except (sa.exc.ArgumentError, ValueError):
        # not the text itself: it may hold a password
        raise DsoptError(
            "--storage: not a database URL. Expected one like 'sqlite:///tuning.db' or "
            "'postgresql://user:password@host/database'."
        ) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database in (None, "", ":memory:"):
        raise DsoptError("--storage: an SQLite database in memory ends with its process. Expected a file.")
    if url.drivername not in ("sqlite", "postgresql+psycopg"):
        raise DsoptError(f"--storage: '{url.drivername}' is not supported. Expected sqlite or postgresql.")
    if _has_cut_password(text, url):
        raise DsoptError(
            "--storage: the password contains an '@', '/', ':' or '?'. Write them as %40, %2F, %3A and %3F in the URL."
        )
    if url.drivername == "sqlite" and url.host:
        raise DsoptError(f"--storage: an SQLite URL has no host ({url.host!r}). Expected 'sqlite:///FILE'.")
    if url.drivername == "sqlite" and url.query:
        raise DsoptError(
            f"--storage: an SQLite URL has no options ({', '.join(url.query)}). Expected 'sqlite:///FILE'."
        )
    if url.drivername == "sqlite":
        assert url.database is not None
        path = os.path.realpath(url.database)
        check_text(path, "--storage")
        url = url.set(database=path)
    return url


def _parsed(text: str) -> URL:
    """SQLAlchemy's URL, which has a second server in its query: `USER@/DATABASE?host=A:5432&host=B:5432`."""
    several = _SERVERS.fullmatch(text)
    if several is None:
        return make_url(text)
    if {"host", "port"} & set(make_url(several["before"] + (several["after"] or "")).query):
        raise sa.exc.ArgumentError("servers twice")
    pairs = [("host", server) for server in several["servers"].split(",")]
    return make_url(several["before"] + (several["after"] or "")).update_query_pairs(pairs)


def exists(url: URL) -> bool:
    """Whether there is a database to connect to; for a server, this is assumed."""
    return url.drivername != "sqlite" or Path(str(url.database)).exists()


def _has_cut_password(text: str, url: URL) -> bool:
    """Whether some of a password was taken for what follows it, because its '@', '/' or '?' are written as they are."""
    if url.drivername == "sqlite":
        return "@" in (url.host or "")
    place = text.partition("@")[2].partition("?")[0]
    return "@" in place or any("@" in f"{key}{value}" for key, value in url.query.items() if not _is_option(key))


def _is_option(key: str) -> bool:
    """Whether PostgreSQL's client has an option of this name; any, if it is not installed: nobody connects then."""
    try:
        from psycopg.pq import Conninfo
    except ImportError:
        return True
    return key.encode() in {option.keyword for option in Conninfo.get_defaults()}


def shown(url: URL) -> str:
    """The URL as it may be printed: without its password."""
    secret = [key for key in url.query if "pass" in key]
    return url.difference_update_query(secret).render_as_string(hide_password=True)


def for_programs(url: URL) -> str:
    """The URL as PostgreSQL's programs take it; they ask for the password, or take it from `~/.pgpass`."""
    query = dict(url.query)
    if isinstance(query.get("host"), tuple):
        _, options = url.get_dialect()().create_connect_args(url)
        query |= {key: options[key] for key in ("host", "port")}
    plain = URL.create("postgresql", url.username, None, url.host, url.port, url.database, query)
    secret = [key for key in url.query if "pass" in key and key != "passfile"]
    return plain.difference_update_query(secret).render_as_string(hide_password=False)
