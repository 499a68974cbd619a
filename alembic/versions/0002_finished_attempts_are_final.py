"""A finished attempt never changes: the database itself refuses it."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_SQLITE = """
CREATE TRIGGER dsopt_attempt_is_final BEFORE UPDATE OF state, reason, message, finished_at ON dsopt_attempts
WHEN OLD.state <> 'running'
BEGIN
    SELECT RAISE(ABORT, 'a finished attempt never changes');
END
"""
_POSTGRES_FUNCTION = """
CREATE FUNCTION dsopt_attempt_is_final() RETURNS trigger AS $$
BEGIN
    RAISE EXCEPTION 'a finished attempt never changes';
END
$$ LANGUAGE plpgsql
"""
_POSTGRES_TRIGGER = """
CREATE TRIGGER dsopt_attempt_is_final BEFORE UPDATE OF state, reason, message, finished_at ON dsopt_attempts
FOR EACH ROW WHEN (OLD.state <> 'running') EXECUTE FUNCTION dsopt_attempt_is_final()
"""


def upgrade():
    if op.get_bind().dialect.name == "sqlite":
        op.execute(_SQLITE)
    else:
        op.execute(_POSTGRES_FUNCTION)
        op.execute(_POSTGRES_TRIGGER)


def downgrade():
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER dsopt_attempt_is_final")
    else:
        op.execute("DROP TRIGGER dsopt_attempt_is_final ON dsopt_attempts")
        op.execute("DROP FUNCTION dsopt_attempt_is_final")
