"""An attempt may end as `slow`: stopped because it could not become the best any more."""

import sqlalchemy as sa

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_CHECK = "ck_dsopt_attempts_state"
_CHILDREN = ("dsopt_leases", "dsopt_measurements")


def upgrade():
    _allow("running", "measured", "slow", "infeasible", "failed", "cancelled")


def downgrade():
    op.execute("DELETE FROM dsopt_attempts WHERE state = 'slow'")
    _allow("running", "measured", "infeasible", "failed", "cancelled")


def _allow(*states):
    condition = f"state IN ({', '.join(repr(state) for state in states)})"
    if op.get_bind().dialect.name == "sqlite":
        _rebuild_with(condition)
    else:
        op.drop_constraint(_CHECK, "dsopt_attempts")
        op.create_check_constraint(op.f(_CHECK), "dsopt_attempts", condition)


def _rebuild_with(condition):
    """SQLite changes no constraint, so the table is built anew.

    That drops the old one, and with it its trigger and every row that refers to it.
    """
    # all or nothing: Python's sqlite3 begins a transaction before it changes rows, not before it makes tables
    op.execute("UPDATE dsopt_studies SET state = state WHERE 1 = 0")
    find = sa.text("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'dsopt_attempts'")
    triggers = op.get_bind().execute(find).scalars().all()
    for table in _CHILDREN:
        op.execute(f"CREATE TEMPORARY TABLE kept_{table} AS SELECT * FROM {table}")  # noqa: S608 - names of our own
    with op.batch_alter_table("dsopt_attempts", recreate="always") as batch:
        batch.create_check_constraint(op.f(_CHECK), condition)
    for table in _CHILDREN:
        op.execute(f"INSERT INTO {table} SELECT * FROM kept_{table}")  # noqa: S608 - names of our own
        op.execute(f"DROP TABLE kept_{table}")
    for trigger in triggers:
        op.execute(trigger)
