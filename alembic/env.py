"""Runs dsopt's migrations on the connection that `dsopt.store.schema` hands over."""

from alembic import context
from dsopt.store.schema import VERSION_TABLE
from dsopt.store.tables import metadata


def is_ours(name, type_, _parents):
    """Optuna's tables, with a version table of their own, stand in the same database."""
    return type_ != "table" or (name or "").startswith("dsopt_")


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    include_name=is_ours,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
