"""The schema of the database, Optuna's and dsopt's: creates, upgrades and checks it."""

from dataclasses import dataclass
from pathlib import Path

import optuna
import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from alembic import command
from dsopt.errors import DsoptError
from dsopt.store.engine import engine_options, exclusive, prepare, shown
from dsopt.store.queries import now
from dsopt.store.tables import workers
from dsopt.store.workers import LEASE_SECONDS, bury_all
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


def upgrade(engine: sa.Engine, revision: str = "head") -> SchemaState:
    """Creates or upgrades Optuna's and dsopt's tables. Any number of processes may do so at once.

    Raises:
        DsoptError: a newer dsopt or a newer Optuna made the database.
    """
    with exclusive(engine, "schema"):
        refuse_newer(engine)
        before = state(engine)
        _refuse_living_workers(engine)
        storage = open_optuna(engine, upgrading=True)
        try:
            if storage.get_current_version() not in storage.get_all_versions():
                raise DsoptError(
                    f"--storage: {shown(engine.url)} was made by a newer Optuna. Install the newer one here too."
                )
            if storage.get_current_version() != storage.get_head_version():
                storage.upgrade()
        finally:
            close_optuna(storage)
        config = _alembic_config()
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
        after = state(engine)
        if before.revision is not None and after.is_current and not before.is_current:
            bury_all(engine)
        return after


def state(engine: sa.Engine) -> SchemaState:
    """The revision of the database."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        revision = context.get_current_revision()
    head = _scripts().get_current_head()
    assert head is not None
    return SchemaState(revision=revision, head=head)


def ensure(engine: sa.Engine) -> None:
    """Creates the schema in an empty database; otherwise checks that it is the current one.

    Raises:
        DsoptError: the database belongs to another version of dsopt, or to another application.
    """
    if state(engine).revision is None:
        refuse_foreign(engine)
        upgrade(engine)
    check(engine)


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


def open_optuna(engine: sa.Engine, *, upgrading: bool = False) -> optuna.storages.RDBStorage:
    """Optuna's storage on the same database. It keeps no connection: a worker asks dsopt's own tables."""
    url = engine.url.render_as_string(hide_password=False)
    try:
        storage = optuna.storages.RDBStorage(
            url,
            engine_kwargs={**engine_options(engine.url), "poolclass": sa.NullPool},
            skip_compatibility_check=upgrading,
            skip_table_creation=not upgrading,
        )
    except RuntimeError as error:
        raise DsoptError(
            f"--storage: {shown(engine.url)}: Optuna cannot use its tables: {error} "
            "Another version of Optuna made them; run: dsopt db upgrade"
        ) from None
    prepare(storage.engine)
    return storage


def close_optuna(storage: optuna.storages.RDBStorage) -> None:
    """Closes the storage's connections."""
    storage.remove_session()
    storage.engine.dispose()


def refuse_newer(engine: sa.Engine) -> None:
    """Refuses a database that a newer dsopt made.

    Raises:
        DsoptError: it has a revision that this version does not know.
    """
    found = state(engine)
    known = {script.revision for script in _scripts().walk_revisions()}
    if found.revision is not None and found.revision not in known:
        raise DsoptError(
            f"--storage: {shown(engine.url)} was made by a newer dsopt: it has revision {found.revision}, "
            f"but dsopt {__version__} knows none after {found.head}. Install the newer dsopt here too."
        )


def _refuse_living_workers(engine: sa.Engine) -> None:
    """Refuses to upgrade a database on which workers of an older version still work.

    Raises:
        DsoptError: they are named.
    """
    found = state(engine)
    if found.revision is None or found.is_current:
        return
    with engine.connect() as connection:
        columns = (workers.c.node, workers.c.pid)  # which every revision has
        silent = now(connection) - workers.c.heartbeat_at
        rows = connection.execute(sa.select(*columns).where(silent < LEASE_SECONDS)).all()
    if rows:
        living = ", ".join(f"{row.node} (process {row.pid})" for row in rows)
        raise DsoptError(
            f"workers of an older dsopt still work on this database: {living}. Stop them, then try again "
            f"(one that was killed counts for {LEASE_SECONDS:.0f} seconds)."
        )


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_alembic_config())


def _alembic_config() -> Config:
    """The migrations: inside an installed package, or at the top of a checkout."""
    package = Path(__file__).parent.parent
    location = next(p for p in (package / "alembic", package.parent / "alembic") if (p / "env.py").is_file())
    config = Config()
    config.set_main_option("script_location", str(location))
    return config
