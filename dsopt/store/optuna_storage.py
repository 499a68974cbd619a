"""Optuna's storage on dsopt's database."""

import optuna
import sqlalchemy as sa

from dsopt.errors import DsoptError
from dsopt.store.engine import engine_options, prepare
from dsopt.store.url import shown


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
