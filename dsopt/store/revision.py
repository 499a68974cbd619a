"""Which revision of dsopt's schema a database has, and whether this version can use it. Needs nothing of Alembic."""

from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from dsopt.errors import DsoptError
from dsopt.store.url import shown
from dsopt.version import __version__

VERSION_TABLE = "dsopt_alembic_version"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """The revision of dsopt's schema that a database has (None: has none), and the newest that this version knows."""

    revision: str | None
    head: str

    @property
    def is_current(self) -> bool:
        return self.revision == self.head


def state(engine: sa.Engine) -> SchemaState:
    """The revision of the database."""
    with engine.connect() as connection:
        has_any = sa.inspect(connection).has_table(VERSION_TABLE)
        query = sa.text(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608 - a constant
        revision = connection.execute(query).scalar() if has_any else None
    return SchemaState(revision=revision, head=known_revisions()[-1])


def check(engine: sa.Engine) -> None:
    """Checks that the schema is the one that this version needs.

    Raises:
        DsoptError: it is older, newer, or there is none.
    """
    found = state(engine)
    if found.revision is None:
        raise DsoptError(f"--storage: {shown(engine.url)} has no dsopt tables. Create them with: dsopt db upgrade")
    if not found.is_current:
        refuse_newer(engine)
        raise DsoptError(
            f"--storage: {shown(engine.url)} was made by an older dsopt (revision {found.revision}, expected "
            f"{found.head}). Stop all workers, then run: dsopt db upgrade"
        )


def refuse_newer(engine: sa.Engine) -> None:
    """Refuses a database that a newer dsopt made.

    Raises:
        DsoptError: it has a revision that this version does not know.
    """
    found = state(engine)
    if found.revision is not None and found.revision not in known_revisions():
        raise DsoptError(
            f"--storage: {shown(engine.url)} was made by a newer dsopt: it has revision {found.revision}, "
            f"but dsopt {__version__} knows none after {found.head}. Install the newer dsopt here too."
        )


def refuse_foreign(engine: sa.Engine) -> None:
    """Refuses a database that neither dsopt nor Optuna has made.

    Raises:
        DsoptError: it has tables of another application.
    """
    tables = set(sa.inspect(engine).get_table_names())
    if tables and not {"studies", "trials", "version_info"} <= tables:
        raise DsoptError(
            f"--storage: {shown(engine.url)} belongs to another application: it has tables such as "
            f"'{min(tables)}'. Expected an empty database, or one of Optuna."
        )


def known_revisions() -> list[str]:
    """All revisions that this version knows, oldest first: each is what the name of its file begins with."""
    return sorted(path.name.partition("_")[0] for path in (migrations() / "versions").glob("[0-9]*_*.py"))


def migrations() -> Path:
    """The folder of the migrations: inside an installed package, or at the top of a checkout."""
    package = Path(__file__).parent.parent
    return next(p for p in (package / "alembic", package.parent / "alembic") if (p / "env.py").is_file())
