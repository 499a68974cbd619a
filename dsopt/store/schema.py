"""The schema of the database, Optuna's and dsopt's: creates and upgrades it."""

import sqlalchemy as sa
from alembic.config import Config

from alembic import command
from dsopt.errors import DsoptError
from dsopt.store.clock import now
from dsopt.store.engine import exclusive
from dsopt.store.heartbeat import LEASE_SECONDS
from dsopt.store.optuna_storage import close_optuna, open_optuna
from dsopt.store.revision import SchemaState, check, migrations, refuse_foreign, refuse_newer, state
from dsopt.store.tables import workers
from dsopt.store.url import shown
from dsopt.store.workers import bury_all


def upgrade(engine: sa.Engine, revision: str = "head") -> SchemaState:
    """Creates or upgrades Optuna's and dsopt's tables. Any number of processes may do so at once.

    Raises:
        DsoptError: a newer dsopt or a newer Optuna made the database.
    """
    with exclusive(engine, "schema"):
        refuse_newer(engine)
        before = state(engine)
        if before.revision is not None and not before.is_current:
            _refuse_living_workers(engine)
        storage = open_optuna(engine, upgrading=True)
        try:
            if storage.get_current_version() not in storage.get_all_versions():
                raise DsoptError(
                    f"--storage: {shown(engine.url)} was made by a newer Optuna. Install the newer one here too."
                )
            if storage.get_current_version() != storage.get_head_version():
                if before.revision is not None:
                    _refuse_living_workers(engine)
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


def ensure(engine: sa.Engine) -> None:
    """Creates the schema in an empty database; otherwise checks that it is the current one.

    Raises:
        DsoptError: the database belongs to another version of dsopt, or to another application.
    """
    if state(engine).revision is None:
        refuse_foreign(engine)
        upgrade(engine)
    check(engine)


def _refuse_living_workers(engine: sa.Engine) -> None:
    """Refuses to upgrade a database on which workers still work, with an older dsopt or an older Optuna.

    Raises:
        DsoptError: they are named.
    """
    with engine.connect() as connection:
        columns = (workers.c.node, workers.c.pid)  # which every revision has
        silent = now(connection) - workers.c.heartbeat_at  # far below 0 of one that died before the clock was set back
        rows = connection.execute(sa.select(*columns).where(sa.func.abs(silent) < LEASE_SECONDS)).all()
    if rows:
        living = ", ".join(f"{row.node} (process {row.pid})" for row in rows)
        raise DsoptError(
            f"workers of an older dsopt or Optuna still work on this database: {living}. Stop them, then try again "
            f"(one that was killed counts for {LEASE_SECONDS:.0f} seconds)."
        )


def _alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations()))
    return config
