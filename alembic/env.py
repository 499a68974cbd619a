"""Runs dsopt's migrations on the connection that `dsopt.store.schema` hands over."""

from alembic import context
from dsopt.store.revision import VERSION_TABLE
from dsopt.store.tables import metadata


def is_ours(name, type_, _parents):
    """Optuna's tables, with a version table of their own, stand in the same database."""
    return type_ != "table" or (name or "").startswith("dsopt_")


connection = context.config.attributes["connection"]
if connection.dialect.name == "sqlite":
    # otherwise each change of a table stands at once, and a migration that was interrupted could never be repeated
    connection.exec_driver_sql("BEGIN IMMEDIATE")
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    include_name=is_ours,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
