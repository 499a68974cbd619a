"""What identifies a database, however a worker reaches it."""

from pathlib import Path

import sqlalchemy as sa

_SYSTEM = "SELECT system_identifier || '/' || current_database() FROM pg_control_system()"


def identity_of(engine: sa.Engine) -> str:
    """The same for all workers of one machine that use one database, and for no others."""
    url = engine.url
    if engine.dialect.name == "sqlite":
        found = Path(str(url.database)).stat()
        return f"sqlite {found.st_dev} {found.st_ino}"
    try:
        with engine.connect() as connection:
            return f"postgresql {connection.execute(sa.text(_SYSTEM)).scalar_one()}"
    except sa.exc.ProgrammingError:  # the function is kept from this role, or is not there
        return f"postgresql {url.host}:{url.port}/{url.database}"
